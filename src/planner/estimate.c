#include "planner/estimate.h"

/* FADE_ROWS: what was seen counts as that many rows at most. UNSEEN: rows that end early when nothing is known. */
static const double fade_rows = 1000, unseen_fraction = 0.25, early = 0.6;

void sp_ends_see(sp_ends_seen *seen, size_t n_new, size_t max_new) {
    if (seen->n_rows >= fade_rows) {
        double keep = (fade_rows - 1) / seen->n_rows;
        seen->n_rows *= keep, seen->n_full *= keep, seen->fractions *= keep;
    }
    seen->n_rows++;
    if (n_new >= max_new)
        seen->n_full++;
    else
        seen->fractions += (double)n_new / (double)max_new;
}

sp_ends sp_ends_likely(const sp_ends_seen *seen) {
    if (seen->n_rows < 1) return (sp_ends){1, 1};
    double n_early = seen->n_rows - seen->n_full;
    return (sp_ends){seen->n_full / seen->n_rows, n_early > 0 ? seen->fractions / n_early : 1};
}

sp_ends sp_ends_early(const sp_ends_seen *seen) {
    if (seen->n_rows < 1) return (sp_ends){0, unseen_fraction};
    sp_ends likely = sp_ends_likely(seen);
    return (sp_ends){early * likely.full_share, early * likely.fraction};
}

double sp_ends_share(const sp_ends *ends) { return ends->full_share + (1 - ends->full_share) * ends->fraction; }

size_t sp_ends_left(const sp_ends *ends, size_t i, size_t max_new, size_t n_new) {
    double golden = (double)i * 0.6180339887498949, u = golden - (double)(size_t)golden; /* spread, but fixed */
    size_t n_all = max_new;
    if (u >= ends->full_share) {
        size_t n_early = (size_t)(ends->fraction * (double)max_new + 0.5);
        if (n_early > n_new) n_all = n_early; /* a row that is past its likely end may go to the last */
    }
    return n_all > n_new ? n_all - n_new : 1;
}

sp_estimate sp_estimate_range(double early_s, double likely_s, double latest_s, double doubt) {
    sp_estimate range = {early_s / (1 + doubt), likely_s, latest_s * (1 + doubt)};
    if (range.low_s > likely_s) range.low_s = likely_s;
    if (range.high_s < likely_s) range.high_s = likely_s;
    return range;
}
