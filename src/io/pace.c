#include "io/pace.h"

/* A trial is long against what lands at once when the reader was late: 50 to 100 ms of a drive of 1 to 3 GB/s. SETTLE:
 * of a pace begun, says nothing, since requests of the one before are among it. PATIENCE: trials until the other has
 * its turn, up to AT_MOST times more where it was slower. A turn that takes LATE times as long as the other pace would
 * is over. So turns cost a fiftieth of the time at most. MARGIN: what noise may look like. */
enum { SETTLE_BYTES = 64 << 20, TRIAL_BYTES = 128 << 20, PATIENCE = 40, FIRST_PATIENCE = 2 };
static const double margin = 1.03, late = 1.5, at_most = 2, recent = 0.4;

static void begin(sp_pace *pace, int64_t settle_bytes, uint64_t now_ns) {
    pace->n_bytes = -settle_bytes;
    pace->start_ns = now_ns;
    pace->starved = false;
}

static void switch_over(sp_pace *pace, bool explores, uint64_t now_ns) {
    pace->is_few = !pace->is_few;
    pace->explores = explores;
    pace->n_trials = 0;
    begin(pace, SETTLE_BYTES, now_ns);
}

/* The other one may be faster, or was not looked at for long. */
static bool may_try_other(const sp_pace *pace) {
    double own = pace->bps[pace->is_few], other = pace->bps[!pace->is_few];
    if (other <= 0) return pace->n_trials >= FIRST_PATIENCE;
    double slower = own / other < at_most ? own / other : at_most;
    return other > margin * own || (double)pace->n_trials >= PATIENCE * slower;
}

/* The trial is over: what its rate says. True: switched. */
static bool judge(sp_pace *pace, double bps, uint64_t now_ns) {
    bool was_few = pace->is_few, is_known = !pace->starved;
    double *own = &pace->bps[was_few], other = pace->bps[!was_few];
    pace->n_trials++;
    if (is_known) *own = *own > 0 && !pace->explores ? (1 - recent) * *own + recent * bps : bps;
    begin(pace, 0, now_ns);
    if (!pace->explores) {
        if (is_known && may_try_other(pace)) switch_over(pace, true, now_ns);
    } else if (is_known && *own > margin * other) {
        pace->explores = false; /* stays */
    } else {
        if (*own <= 0) *own = other / at_most; /* never seen undisturbed: its turn comes again in good time */
        switch_over(pace, false, now_ns);
    }
    return pace->is_few != was_few;
}

bool sp_pace_landed(sp_pace *pace, size_t n_bytes, uint64_t now_ns) {
    if (pace->few == 0) return false;
    if (pace->start_ns == 0) begin(pace, SETTLE_BYTES, now_ns);
    pace->n_bytes += (int64_t)n_bytes;
    if (pace->n_bytes <= 0) { /* settles still */
        pace->start_ns = now_ns;
        pace->starved = false;
        return false;
    }
    double seconds = now_ns > pace->start_ns ? (double)(now_ns - pace->start_ns) * 1e-9 : 1e-9;
    double other = pace->bps[!pace->is_few];
    bool is_late = pace->explores && seconds * other > late * TRIAL_BYTES;
    if (pace->n_bytes < TRIAL_BYTES && !is_late) return false;
    return judge(pace, (double)pace->n_bytes / seconds, now_ns);
}
