/* strftime_now: the date as the template wants it written, in the C locale. Python's own letters (%f, %z, %Z of a time
 * without zone) are handled here, the rest is the C library's. */
#include <string.h>
#include <time.h>

#include "chat/render.h"

static void broken_down(sp_render *r, struct tm *tm) {
    time_t now = (time_t)r->now_s;
    if (!now) {
        now = time(NULL);
        localtime_r(&now, tm);
    } else if (!gmtime_r(&now, tm)) {
        sp_render_fail(r, "the date is beyond the calendar");
    }
}

const sp_text *sp_strftime(sp_render *r, const sp_text *format) {
    struct tm tm;
    broken_down(r, &tm);
    sp_sink sink = {.r = r};
    for (size_t i = 0; i < format->n_bytes; i++) {
        if (format->data[i] != '%' || i + 1 == format->n_bytes) {
            sp_sink_slice(&sink, format, i, i + 1);
            continue;
        }
        size_t from = i++;
        while (i + 1 < format->n_bytes && format->data[i] && strchr("-_0^#", format->data[i])) i++;
        char c = format->data[i], directive[16] = {0}, out[200];
        if (c == 'f') sp_sink_cstr(&sink, "000000");
        if (c == 'f' || c == 'z' || c == 'Z') continue;
        size_t n = i + 1 - from;
        if (n >= sizeof directive || c == '\0' || (c & 0x80)) {
            sp_sink_slice(&sink, format, from, i);
            i--;
            continue;
        }
        memcpy(directive, format->data + from, n);
        sp_sink_bytes(&sink, out, strftime(out, sizeof out, directive, &tm), format->n_user > 0);
    }
    return sp_sink_finish(&sink);
}
