/* SPDX-License-Identifier: Apache-2.0 */
/* address.h - textual addresses of the control plane: "unix:NAME" (abstract), "HOST:PORT",
 * "[V6]:PORT", and comma lists of them.
 *
 * A host that is a number never leaves the process; a name goes to the system's resolver, which is
 * the one thing here that no deadline bounds, so launchers hand out numbers.
 *
 * Thread: any.  Blocks: only on names.  Start reading at address_list_parse(). */
#ifndef HVD_WIRE_ADDRESS_H
#define HVD_WIRE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/os.h"
#include "base/status.h"

#define ADDRESS_TEXT_MAX 256u /* bytes of one textual address with its NUL */
#define ADDRESS_LIST_MAX 32   /* addresses of one list after resolving names */

struct address {
    struct sockaddr_storage sockaddr;
    unsigned bytes;
};

/* Reads one address or a comma list; a name may give several. HVD_ERR_INVALID: malformed.
 * HVD_ERR_LINK: no name of the list could be resolved (now). */
hvd_status_t address_list_parse(const struct os *os, const char *text, struct address *ret_list,
                                int max, int *ret_count, struct error *error);
/* The text that address_list_parse() would read back; never longer than ADDRESS_TEXT_MAX. */
void address_format(const struct address *address, char *ret_text, size_t bytes);
/* 0.0.0.0 or [::]: would listen on every interface. */
bool address_is_wildcard(const struct address *address);

/* "A-B" or "A", 1 to 65535; "" and NULL: any port, 0 and 0. */
hvd_status_t port_range_parse(const char *text, uint16_t *ret_first, uint16_t *ret_last,
                              struct error *error);

#endif
