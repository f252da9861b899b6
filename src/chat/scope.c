/* Variables. A scope is a short list of what was set in it; names are looked up outwards, then among the globals.
 * Macros keep the scope they were defined in, so scopes live as long as the rendering. */
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

sp_scope *sp_scope_new(sp_render *r, sp_scope *parent) {
    sp_scope *scope = SP_RENDER_NEW(r, sp_scope);
    scope->parent = parent;
    return scope;
}

sp_scope *sp_scope_renew(sp_render *r, sp_scope *used, sp_scope *parent) {
    if (!used || used->kept) return sp_scope_new(r, parent);
    used->n = 0;
    return used;
}

void sp_scope_keep(sp_scope *scope) {
    for (; scope && !scope->kept; scope = scope->parent) scope->kept = true;
}

void sp_scope_set(sp_render *r, sp_scope *scope, int i_name, sp_value v) {
    for (size_t i = 0; i < scope->n; i++) {
        if (scope->vars[i].i_name != i_name) continue;
        scope->vars[i].value = v;
        return;
    }
    if (scope->n == scope->room) {
        scope->room = sp_max_size(4, scope->room * 2);
        sp_var *vars = sp_render_alloc(r, scope->room, sizeof *vars);
        if (scope->n) memcpy(vars, scope->vars, scope->n * sizeof *vars);
        scope->vars = vars;
    }
    scope->vars[scope->n++] = (sp_var){i_name, v};
}

sp_value sp_scope_get(sp_render *r, const sp_node *name) {
    for (const sp_scope *scope = r->scope; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->n; i++)
            if (scope->vars[i].i_name == name->i_name) return scope->vars[i].value;
    sp_value v = r->globals[name->i_name];
    return sp_value_given(v) ? v : sp_undefined_variable(r, name->text);
}
