/* The plan in words and as JSON. */
#include <string.h>
#include <time.h>

#include "kernels/ops.h"
#include "planner/machine_file.h"
#include "planner/plan.h"
#include "util/units.h"

enum { SHOWN_NAME_BYTES = 128 };

static const char *const placement_names[] = {"auto", "resident", "stream"};

static bool add_bytes(uint64_t n_bytes, sp_buf *out) {
    char text[SP_UNITS_BYTES];
    return sp_buf_text(out, sp_units_bytes(n_bytes, text));
}

static bool add_time(double seconds, sp_buf *out) {
    char text[SP_UNITS_BYTES];
    return sp_buf_text(out, sp_units_time(seconds, text));
}

/* "measured here", "measured 2026-11-29" */
static bool add_when(const sp_machine *machine, sp_buf *out) {
    if (machine->disk_measured_now || machine->disk_measured_s == 0) return sp_buf_text(out, "measured here");
    time_t when = (time_t)machine->disk_measured_s;
    struct tm day;
    gmtime_r(&when, &day);
    char text[16];
    strftime(text, sizeof text, "%Y-%m-%d", &day);
    return sp_buf_printf(out, "measured %s", text);
}

/* Of a model that would fit and is streamed because somebody said so. */
static bool add_as_asked(const sp_model *model, const sp_plan *plan, sp_buf *out) {
    return sp_buf_printf(out, "; as asked: %zu of %zu layers stay in memory, fewer with less --memory",
                         plan->n_pinned_layers, model->arch.n_layers);
}

static bool first_line(const sp_model *model, const sp_machine *machine, const sp_plan_request *request,
                       const sp_plan *plan, sp_buf *out) {
    bool fits = plan->overhead_bytes + plan->weight_bytes + plan->activation_bytes <= plan->budget_bytes;
    char name[SHOWN_NAME_BYTES];
    bool ok = sp_buf_printf(out, "%s ", sp_printable(model->name, strlen(model->name), name, sizeof name));
    for (const char *c = model->dominant_format; *c; c++)
        ok = ok && sp_buf_char(out, *c >= 'A' && *c <= 'Z' ? (char)(*c + ('a' - 'A')) : *c);
    ok = ok && sp_buf_text(out, ", ") && add_bytes(plan->weight_bytes, out) &&
         sp_buf_text(out, fits ? ", fits in " : ", does not fit in ") && add_bytes(plan->budget_bytes, out);
    if (plan->placement == SP_PLACE_RESIDENT) return ok && sp_buf_text(out, ": resident\n");
    if (machine->disk_bps == 0)
        ok = ok && sp_buf_text(out, ": streaming (drive not measured)");
    else
        ok = ok && sp_buf_text(out, ": streaming at ") && add_bytes((uint64_t)machine->disk_bps, out) &&
             sp_buf_text(out, "/s (") && add_when(machine, out) && sp_buf_text(out, ")");
    bool is_asked = fits && request->placement == SP_PLACE_STREAM;
    return ok && (!is_asked || add_as_asked(model, plan, out)) && sp_buf_char(out, '\n');
}

static bool add_weights(const sp_model *model, const sp_plan *plan, sp_buf *out) {
    if (plan->placement == SP_PLACE_RESIDENT)
        return sp_buf_text(out, "plan: weights ") && add_bytes(plan->pinned_bytes, out);
    bool ok = sp_buf_text(out, "plan: ring ") && add_bytes(plan->ring_bytes, out);
    if (plan->pinned_bytes == 0) return ok;
    return ok &&
           sp_buf_printf(out, ", pinned %zu/%zu layers%s ", plan->n_pinned_layers, model->arch.n_layers,
                         plan->pin_head ? " and the head" : "") &&
           add_bytes(plan->pinned_bytes, out);
}

bool sp_plan_text(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, const sp_plan *plan,
                  sp_buf *out) {
    bool ok = first_line(model, machine, request, plan, out) && add_weights(model, plan, out) &&
              sp_buf_text(out, ", KV ") && add_bytes(plan->kv_bytes, out) &&
              sp_buf_printf(out, " = %zu row%s x %zu tokens", plan->rows, sp_units_s(plan->rows),
                            plan->kv_pages * SP_KV_PAGE_TOKENS / plan->rows);
    if (ok && plan->pass_seconds > 0) ok = sp_buf_text(out, ", pass ") && add_time(plan->pass_seconds, out);
    if (ok && request->n_rows > 0)
        ok = sp_buf_printf(out, ", %s%zu row%s", request->n_known < request->n_rows ? "about " : "", request->n_rows,
                           sp_units_s(request->n_rows));
    if (ok && plan->estimate.high_s > 0)
        ok = sp_buf_text(out, " in ") && add_time(plan->estimate.low_s, out) && sp_buf_text(out, " - ") &&
             add_time(plan->estimate.high_s, out);
    return ok && sp_buf_char(out, '\n');
}

bool sp_plan_warning(const sp_machine *machine, const sp_plan_request *request, const sp_plan *plan, sp_buf *out) {
    if (request->memory_bytes <= machine->limit_bytes) return true;
    const char *whose = machine->limit_bytes < machine->ram_bytes ? "its cgroup allows " : "the machine has ";
    uint64_t n_bytes =
        plan->overhead_bytes + plan->ring_bytes + plan->activation_bytes + plan->kv_bytes + plan->pinned_bytes;
    bool ok = sp_buf_text(out, "--memory: ") && add_bytes(request->memory_bytes, out) && sp_buf_text(out, " given, ") &&
              sp_buf_text(out, whose) && add_bytes(machine->limit_bytes, out) &&
              sp_buf_text(out, "; the plan takes ") && add_bytes(n_bytes, out);
    return ok && sp_buf_text(out, n_bytes > machine->limit_bytes ? " at most, past the limit it swaps or is killed"
                                                                 : " at most, which fits");
}

static json_t *range_json(const sp_estimate *range) {
    return json_pack("{s:f, s:f, s:f}", "low", range->low_s, "likely", range->likely_s, "high", range->high_s);
}

json_t *sp_plan_json(const sp_model *model, const sp_machine *machine, const sp_plan_request *request,
                     const sp_plan *plan) {
    json_t *fields = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "placement",
        placement_names[plan->placement], "budget_bytes", (json_int_t)plan->budget_bytes, "limit_bytes",
        (json_int_t)machine->limit_bytes, "weight_bytes", (json_int_t)plan->weight_bytes, "ring_bytes",
        (json_int_t)plan->ring_bytes, "pinned_bytes", (json_int_t)plan->pinned_bytes, "activation_bytes",
        (json_int_t)plan->activation_bytes, "overhead_bytes", (json_int_t)plan->overhead_bytes, "kv_bytes",
        (json_int_t)plan->kv_bytes, "pinned_layers", (json_int_t)plan->n_pinned_layers, "layers",
        (json_int_t)model->arch.n_layers, "pinned_head", (int)plan->pin_head, "kept_embedding", (int)plan->keep_embed);
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:o}", "kv_tokens",
                  (json_int_t)plan->kv_pages * SP_KV_PAGE_TOKENS, "rows", (json_int_t)plan->rows, "pass_tokens",
                  (json_int_t)plan->pass_tokens, "ring_slots", (json_int_t)plan->ring_slots, "input_rows",
                  (json_int_t)request->n_rows, "reader", sp_machine_backend_name(plan->read_backend), "read_depth",
                  (json_int_t)plan->read_depth, "read_request_bytes", (json_int_t)plan->read_request_bytes, "disk_bps",
                  machine->disk_bps, "pass_seconds", plan->pass_seconds, "estimate_passes", plan->estimate_passes,
                  "estimate_seconds", range_json(&plan->estimate));
    if (fields && more) json_object_update(fields, more);
    json_decref(more);
    sp_buf warning = {0};
    if (fields && sp_plan_warning(machine, request, plan, &warning) && warning.data)
        json_object_set_new(fields, "warning", json_stringn(warning.data, warning.n_bytes));
    sp_buf_deinit(&warning);
    return fields;
}
