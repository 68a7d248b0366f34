/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"
void probe_serve(struct mem *m, struct link *l, struct reader *request, struct probe_server **ret)
{
    (void)m;
    (void)l;
    (void)request;
    (void)ret;
}
void probe_dial(struct mem *m, struct link *l, struct reader *request)
{
    (void)m;
    (void)l;
    (void)request;
}
void probe_destroy(struct probe_server *p)
{
    (void)p;
}
