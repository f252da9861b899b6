/* spill run, resume, plan: options into a job, events onto the screen. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/opts.h"
#include "cli/show.h"
#include "util/clock.h"

enum { ONE_REQUEST_NS = 500000000 };

static volatile sig_atomic_t stop_requested;
static volatile uint64_t stop_requested_ns;
static volatile sig_atomic_t tells_stop; /* a live block is on the terminal */

/* The first SIGINT, SIGTERM or SIGHUP (a terminal that closes) stops between passes; a later one ends the program at
 * once. Two that come together are one request: timeout(1) sends its signal to the process, then to the process group.
 */
static void request_stop(int signal_number) {
    uint64_t now = sp_clock_ns();
    if (!stop_requested) stop_requested_ns = now;
    if (!stop_requested && tells_stop) { /* in the empty line below the block, which clears it */
        static const char told[] = "\rstopping after this pass; a second time: at once";
        int errno_before = errno;
        ssize_t ignored = write(STDERR_FILENO, told, sizeof told - 1);
        (void)ignored;
        errno = errno_before;
    }
    stop_requested = 1;
    if (now - stop_requested_ns < ONE_REQUEST_NS) return;
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* comes when this returns */
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = request_stop}, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool is_ignored = sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN; /* by nohup(1) */
    if (!is_ignored) sigaction(SIGHUP, &action, NULL);
}

static int64_t count_or(const sp_invocation *invocation, sp_option_id id, int64_t fallback) {
    return invocation->options[id].given ? invocation->options[id].count : fallback;
}

static double number_or(const sp_invocation *invocation, sp_option_id id, double fallback) {
    return invocation->options[id].given ? invocation->options[id].number : fallback;
}

static bool check_options(const sp_invocation *invocation, sp_error *err) {
    const sp_option_value *options = invocation->options;
    if (options[SP_OPT_MAX_TOKENS].given && options[SP_OPT_MAX_TOKENS].count < 1)
        return sp_fail(err, SP_ERR_USAGE, "--max-tokens: 0 found, at least 1 wanted");
    if (options[SP_OPT_TOP_P].given && !(options[SP_OPT_TOP_P].number > 0 && options[SP_OPT_TOP_P].number <= 1))
        return sp_fail(err, SP_ERR_USAGE, "--top-p: %s found, a number over 0, at most 1 wanted",
                       options[SP_OPT_TOP_P].text);
    if (options[SP_OPT_TEMPERATURE].given && options[SP_OPT_TEMPERATURE].number > SP_TEMPERATURE_MAX)
        return sp_fail(err, SP_ERR_USAGE, "--temperature: %s found, a number from 0 to %d wanted",
                       options[SP_OPT_TEMPERATURE].text, SP_TEMPERATURE_MAX);
    static const sp_option_id positive[] = {SP_OPT_THREADS, SP_OPT_ROWS, SP_OPT_LIMIT};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (options[positive[i]].given && options[positive[i]].count < 1)
            return sp_fail(err, SP_ERR_USAGE, "--%s: 0 found, at least 1 wanted", sp_options[positive[i]].long_name);
    if (count_or(invocation, SP_OPT_PRECISION, 0) >= 2)
        return sp_fail(err, SP_ERR_SUPPORT,
                       "--precision %s: not supported yet; leave it out to run the weights as they are",
                       options[SP_OPT_PRECISION].text);
    return true;
}

static sp_job_options job_options(const sp_invocation *invocation) {
    const sp_option_value *output = &invocation->options[SP_OPT_OUTPUT];
    bool is_dash = output->given && strcmp(output->text, "-") == 0; /* as everywhere: stdout */
    sp_decoding decoding = sp_decoding_default();
    decoding.max_tokens = (size_t)count_or(invocation, SP_OPT_MAX_TOKENS, (int64_t)decoding.max_tokens);
    decoding.temperature = number_or(invocation, SP_OPT_TEMPERATURE, decoding.temperature);
    decoding.top_p = number_or(invocation, SP_OPT_TOP_P, decoding.top_p);
    decoding.top_k = (size_t)count_or(invocation, SP_OPT_TOP_K, (int64_t)decoding.top_k);
    return (sp_job_options){
        .model_path = invocation->n_args > 0 ? invocation->args[0] : NULL,
        .input_path = invocation->n_args > 1 ? invocation->args[1] : NULL,
        .output_path = is_dash ? NULL : output->text,
        .to_stdout = is_dash || (!output->given && !isatty(STDOUT_FILENO)),
        .command = invocation->command_line,
        .decoding = decoding,
        .seed = count_or(invocation, SP_OPT_SEED, 0),
        .mode = (sp_mode)count_or(invocation, SP_OPT_MODE, SP_MODE_BF16),
        .placement = (sp_placement)count_or(invocation, SP_OPT_PLACEMENT, SP_PLACE_AUTO),
        .memory_bytes = (uint64_t)count_or(invocation, SP_OPT_MEMORY, 0),
        .n_threads = (size_t)count_or(invocation, SP_OPT_THREADS, 0),
        .rows_cap = (size_t)count_or(invocation, SP_OPT_ROWS, 0),
        .limit = (size_t)count_or(invocation, SP_OPT_LIMIT, 0),
        .time_limit_s = number_or(invocation, SP_OPT_TIME_LIMIT, 0),
        .disable_isa = getenv("SPILL_DISABLE_ISA"),
        .prompt = {.plain_text = invocation->options[SP_OPT_PLAIN_TEXT].given,
                   .now_s = count_or(invocation, SP_OPT_DATE, 0)},
        .echo_tokens = invocation->options[SP_OPT_ECHO_TOKENS].given,
        .machine_path = invocation->options[SP_OPT_MACHINE].text,
        .stop_flag = &stop_requested,
    };
}

/* Failed in the middle: what is there is kept. */
static void tell_resume(const sp_job_result *result, sp_error *err) {
    if (!*result->run_id || (err->code != SP_ERR_IO && err->code != SP_ERR_MEMORY)) return;
    sp_error cause = *err;
    sp_error_clear(err);
    if (result->has_no_file)
        sp_fail(err, cause.code, "%s; %zu row%s written to no regular file, the run cannot be continued", cause.text,
                result->n_done, result->n_done == 1 ? " was" : "s were");
    else
        sp_fail(err, cause.code, "%s; %zu row%s kept, continue with spill resume %s", cause.text, result->n_done,
                result->n_done == 1 ? " is" : "s are", result->run_id);
}

static int run_job(const sp_invocation *invocation, sp_job_options *options, sp_error *err) {
    catch_signals();
    sp_show_style style = invocation->options[SP_OPT_JSON].given    ? SP_SHOW_JSON
                          : invocation->options[SP_OPT_QUIET].given ? SP_SHOW_QUIET
                                                                    : SP_SHOW_LIVE;
    sp_show *show = sp_show_new(style);
    tells_stop = style == SP_SHOW_LIVE && isatty(STDERR_FILENO);
    sp_job_events events = sp_show_events(show);
    sp_job_result result = {0};
    bool good = err->code == SP_OK && sp_job_run(options, &events, &result, err);
    int status = !good             ? sp_cli_status(err)
                 : result.stopped  ? SP_EXIT_STOPPED
                 : result.n_errors ? SP_EXIT_ROW_ERRORS
                                   : SP_EXIT_DONE;
    if (!good) tell_resume(&result, err);
    if (good)
        sp_show_end(show, &result);
    else
        sp_show_fail(show, err);
    sp_show_free(show);
    return status;
}

int sp_cmd_run(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_job_options options = {0};
    if (check_options(invocation, &err)) options = job_options(invocation);
    return run_job(invocation, &options, &err);
}

int sp_cmd_resume(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_job_options options = {0};
    sp_resume *resume = NULL;
    if (check_options(invocation, &err))
        resume = sp_resume_by_id(NULL, invocation->n_args ? invocation->args[0] : NULL, &err);
    if (resume) {
        options = job_options(invocation);
        sp_resume_options(resume, &options);
        options.to_stdout = !options.output_path && !isatty(STDOUT_FILENO);
    }
    int status = run_job(invocation, &options, &err);
    sp_resume_close(resume);
    return status;
}

static void print_plan(void *ctx, const sp_job_info *info) {
    const bool *as_json = ctx;
    if (*as_json) {
        json_t *plan = sp_show_plan_json(info);
        json_dumpf(plan, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(plan);
        return;
    }
    sp_show_plan(stdout, info);
}

int sp_cmd_plan(const sp_invocation *invocation) {
    sp_error err = {0};
    if (!check_options(invocation, &err)) return sp_cli_fail(&err);
    bool as_json = invocation->options[SP_OPT_JSON].given;
    sp_job_options options = job_options(invocation);
    sp_job_events events = {.ctx = &as_json, .planned = print_plan};
    return sp_job_plan(&options, &events, &err) ? 0 : sp_cli_fail(&err);
}
