/* SPDX-License-Identifier: Apache-2.0 */
/* double_tree.c - two binary trees, each for half of the data, pipelined in chunks: about
 * 2 log2(N) latencies and 2 S bytes at any N. For many hosts where a ring has too many rounds.
 *
 * A tree numbers its nodes 1 .. N in order: node x with lowest set bit b has its children at
 * x - b/2 and x + b/2; a node beyond N is replaced by its left child. N = 6:
 *
 *              4
 *          2       6          leaves are the odd nodes. The second tree is the mirror image
 *        1   3   5            (N even) or is turned by one (N odd): who is a leaf in one tree is
 *                             an inner node of the other, so all ranks send about as much.
 *
 * Each channel runs one tree: chunk i goes up, then chunk i - lag comes down, so that after `lag`
 * chunks both directions of every link are busy.
 *
 * Invariant: sums are formed left + own + right, in rank order of the tree, and only the root's
 * copy comes down: same bits everywhere.  Thread: any (pure).  Start at build_double_tree(). */
#include "schedule/build.h"

#define CHUNK_BYTES     (256u << 10)
#define CHUNK_COUNT_MAX 4096u

struct tree {
    uint32_t size;
    bool is_second;
    int32_t parent, left, right; /* positions, -1: none */
    bool is_left_child;
};

static uint32_t low_bit(uint32_t x)
{
    return x & (~x + 1u);
}

static uint32_t node_of(const struct tree *t, int32_t position)
{
    uint32_t p = (uint32_t)position;
    if (!t->is_second)
        return p + 1;
    return t->size % 2 == 0 ? t->size - p : (p + 1) % t->size + 1;
}

static int32_t position_of(const struct tree *t, uint32_t node)
{
    if (!t->is_second)
        return (int32_t)(node - 1);
    return (int32_t)(t->size % 2 == 0 ? t->size - node : (node + t->size - 2) % t->size);
}

static int32_t tree_parent(const struct tree *t, uint32_t node)
{
    if (node == build_power_below(t->size))
        return -1;
    do {
        uint32_t bit = low_bit(node);
        node = (node & ~bit) | (bit << 1);
    } while (node > t->size);
    return position_of(t, node);
}

static int32_t tree_right(const struct tree *t, uint32_t node)
{
    uint32_t half = low_bit(node) / 2, child = node + half;
    if (half == 0)
        return -1;
    while (child > t->size) {
        half /= 2;
        if (half == 0)
            return -1;
        child -= half;
    }
    return position_of(t, child);
}

static struct tree tree_make(const struct build *b, bool is_second)
{
    struct tree t = {.size = (uint32_t)b->size, .is_second = is_second};
    uint32_t node = node_of(&t, b->rank), half = low_bit(node) / 2;
    t.parent = tree_parent(&t, node);
    t.left = half == 0 ? -1 : position_of(&t, node - half);
    t.right = tree_right(&t, node);
    return t;
}

static void chunk_up(struct build *b, const struct tree *t, struct slice chunk, bool is_open)
{
    bool is_root = t->parent < 0;
    if (t->left >= 0)
        build_reduce(b, t->left, chunk, false, is_root && t->right < 0);
    if (t->right >= 0)
        build_reduce(b, t->right, chunk, true, is_root);
    if (!is_root)
        build_transfer(b, STEP_SEND, t->parent, chunk, is_open);
}

static void chunk_down(struct build *b, const struct tree *t, struct slice chunk)
{
    if (t->parent >= 0)
        build_transfer(b, STEP_RECV, t->parent, chunk, false);
    if (t->left >= 0)
        build_transfer(b, STEP_SEND, t->left, chunk, t->right >= 0);
    if (t->right >= 0)
        build_transfer(b, STEP_SEND, t->right, chunk, false);
}

static uint64_t chunk_count(const struct build *b)
{
    uint64_t chunks = (b->count * b->element_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    if (chunks > b->count)
        chunks = b->count;
    return chunks > CHUNK_COUNT_MAX ? CHUNK_COUNT_MAX : chunks;
}

static void build_tree(struct build *b)
{
    struct tree tree = tree_make(b, b->channel % 2 == 1);
    uint64_t chunks = chunk_count(b), lag = 1;
    for (uint32_t n = (uint32_t)b->size; n > 1; n /= 2)
        lag++;
    for (uint64_t i = 0; i < chunks + lag; i++) {
        bool has_up = i < chunks, has_down = i >= lag && i - lag < chunks;
        struct slice chunk;
        if (has_up) {
            chunk = build_slice(b->count, chunks, i, b->element_bytes);
            chunk.offset += b->base;
            chunk_up(b, &tree, chunk, has_down);
        }
        if (has_down) {
            chunk = build_slice(b->count, chunks, i - lag, b->element_bytes);
            chunk.offset += b->base;
            chunk_down(b, &tree, chunk);
        }
    }
}

void build_double_tree(struct build *b)
{
    if (b->size < 2)
        return;
    build_channels(b, build_tree, b->count < 2 ? 1 : 2);
}
