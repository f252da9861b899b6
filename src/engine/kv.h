/* The paged KV cache: where the keys and values of rows in flight lie.
 *
 * A page holds SP_KV_PAGE_TOKENS tokens of one row. Every layer has its own array of pages (one extent of virtual
 * memory each, so that a layer's cache can later move to the drive beside its weights), and a page's index is the same
 * in all of them. Memory is touched only when a page is first taken: resident size follows the pages in use. Pages are
 * counted, so that rows with a common prefix can share them. No allocation after open. Not thread-safe. */
#ifndef SPILL_ENGINE_KV_H
#define SPILL_ENGINE_KV_H

#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

typedef struct sp_kv sp_kv;

sp_kv *sp_kv_open(size_t n_layers, size_t page_bytes, size_t n_pages, sp_error *err) SP_MUST_CHECK;
void sp_kv_close(sp_kv *kv); /* NULL is fine */

void *sp_kv_layer(const sp_kv *kv, size_t i_layer); /* page array of a layer, 64-byte aligned */
size_t sp_kv_pages_free(const sp_kv *kv);

/* At most n_pages pages are in use from now on, as many as now or more; the limit never rises again. The memory of the
 * pages given up goes back to the system; returns the bytes that the cache can not take any more. */
size_t sp_kv_set_limit(sp_kv *kv, size_t n_pages);
size_t sp_kv_bytes_above(const sp_kv *kv, size_t n_pages); /* bytes of pages beyond n_pages */

/* A page with one owner, all zero in every layer (what an earlier row left there, NaN perhaps, must not reach the
 * products with masked tokens). There must be a free one. */
uint32_t sp_kv_take(sp_kv *kv);
void sp_kv_share(sp_kv *kv, uint32_t page); /* one owner more */
void sp_kv_drop(sp_kv *kv, uint32_t page);  /* one owner less; free when it was the last */

#endif
