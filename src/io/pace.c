#include "io/pace.h"

/* A trial: 20 to 60 ms of a drive of 1 to 3 GB/s. SETTLE: trials after a switch that say nothing, since requests of
 * before are among them. EXPLORE: after those, at most; HOPELESS ones end it. PATIENCE: trials until the other has its
 * turn, as many times more as it is slower, so that it takes a fiftieth of the time. MARGIN: what noise may look like.
 */
enum { TRIAL_BYTES = 64 << 20, SETTLE = 1, EXPLORE = 2, PATIENCE = 120 };
static const double margin = 1.03, hopeless = 0.9, recent = 0.4;

static void switch_over(sp_pace *pace, bool explores) {
    pace->is_few = !pace->is_few;
    pace->explores = explores;
    pace->n_trials = 0;
}

/* The other one may be faster, or was not looked at for long. */
static bool may_try_other(const sp_pace *pace) {
    double own = pace->bps[pace->is_few], other = pace->bps[!pace->is_few];
    if (other <= 0) return pace->n_trials >= SETTLE + EXPLORE;
    return other > margin * own || (double)pace->n_trials * other >= PATIENCE * own;
}

/* The trial is over: what its rate says. True: switched. */
static bool judge(sp_pace *pace, double bps) {
    bool was_few = pace->is_few, is_known = !pace->starved;
    double *own = &pace->bps[was_few], other = pace->bps[!was_few];
    if (++pace->n_trials <= SETTLE) return false;
    if (is_known) *own = *own > 0 && !pace->explores ? (1 - recent) * *own + recent * bps : bps;
    if (!pace->explores) {
        if (is_known && may_try_other(pace)) switch_over(pace, true);
    } else if (is_known && *own > margin * other) {
        pace->explores = false; /* stays */
    } else if (!is_known || *own < hopeless * other || pace->n_trials >= SETTLE + EXPLORE) {
        if (*own <= 0) *own = 0.5 * other; /* never seen undisturbed: its turn comes again in good time */
        switch_over(pace, false);
    }
    return pace->is_few != was_few;
}

bool sp_pace_landed(sp_pace *pace, size_t n_bytes, uint64_t now_ns) {
    if (pace->few == 0) return false;
    if (pace->start_ns == 0) {
        pace->start_ns = now_ns;
        pace->starved = false;
        return false;
    }
    pace->n_bytes += n_bytes;
    if (pace->n_bytes < TRIAL_BYTES) return false;
    uint64_t ns = now_ns > pace->start_ns ? now_ns - pace->start_ns : 1;
    bool switched = judge(pace, (double)pace->n_bytes * 1e9 / (double)ns);
    pace->n_bytes = 0;
    pace->start_ns = now_ns;
    pace->starved = false;
    return switched;
}
