// From a list of edges to a matrix in a cache-friendly node order: sorting entries, finding the order, applying it.
// csr.py does the same with torch and SciPy, to the last bit, and says what the steps are for.
//
// Plain C interface, no Python and no torch headers: kernel.py loads it with ctypes.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace {

template <class T>
using Array = std::unique_ptr<T[]>;

template <class T>
Array<T> unset(int64_t count) {  // all of it is written before it is read: no need to fill it with zeros first
    return Array<T>(new T[count]);
}

// Waking threads for less work than this costs more than it saves.
int team(int threads, int64_t work) { return int(std::max<int64_t>(1, std::min<int64_t>(threads, work / 50000))); }

// ---------------------------------------------------------------------------------------------------- sorting
// A row's entries as (column, where it came from), in 64 bits; all differ, so that any sort is a stable one.
uint64_t pack(int64_t col, int64_t source) { return uint64_t(col) << 32 | uint32_t(source); }

void finish_row(uint64_t* begin, uint64_t* end, int32_t* col, int32_t* source) {
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    for (; begin < end; ++begin) *col++ = int32_t(*begin >> 32), *source++ = int32_t(uint32_t(*begin));
}

struct Entry {
    int32_t row, col, source;
};

// Entries by row >> shift, which has few values: every thread writes to few places at a time. Stable.
template <class Index>
Array<Entry> by_bucket(int64_t count, const Index* row, const Index* col, int shift, std::vector<int64_t>& start,
                       int threads) {
    const int64_t parts = team(threads, count), buckets = int64_t(start.size()) - 1;
    const auto cut = [=](int64_t part) { return count * part / parts; };
    std::vector<int64_t> next(parts * buckets);
    auto entries = unset<Entry>(count);
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t i = cut(part); i < cut(part + 1); ++i) ++next[part * buckets + (row[i] >> shift)];
    int64_t place = 0;
    for (int64_t k = 0; k < buckets; ++k) {
        start[k] = place;
        for (int64_t part = 0; part < parts; ++part) place += std::exchange(next[part * buckets + k], place);
    }
    start[buckets] = place;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t i = cut(part); i < cut(part + 1); ++i)
            entries[next[part * buckets + (row[i] >> shift)]++] = {int32_t(row[i]), int32_t(col[i]), int32_t(i)};
    return entries;
}

// Sorts entries by (row, col), equal ones in the order in which they came: crow and col of a CSR matrix that may hold
// an entry twice; source[e] says where entry e came from.
template <class Index>
void sort_entries(int64_t n, int64_t count, const Index* row, const Index* col, int32_t* crow, int32_t* sorted_col,
                  int32_t* source, int threads) {
    int shift = 0;
    while (n >> shift > 512) ++shift;
    std::vector<int64_t> start(((n - 1) >> shift) + 2);
    const auto entries = by_bucket(count, row, col, shift, start, threads);
    const auto next = unset<int32_t>(n);  // where a row's next entry goes
    int64_t largest = 0;
    for (size_t k = 1; k < start.size(); ++k) largest = std::max(largest, start[k] - start[k - 1]);
    threads = team(threads, count + n);
    const auto room = unset<uint64_t>(threads * largest);  // for one bucket a thread
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t k = 0; k < int64_t(start.size()) - 1; ++k) {
        uint64_t* keys = &room[omp_get_thread_num() * largest];
        const int64_t first = k << shift, last = std::min(n, (k + 1) << shift);
        std::fill(&next[first], &next[0] + last, 0);
        for (int64_t i = start[k]; i < start[k + 1]; ++i) ++next[entries[i].row];
        int32_t place = int32_t(start[k]);
        for (int64_t r = first; r < last; ++r) {
            crow[r] = place;
            place += std::exchange(next[r], place);
        }
        for (int64_t i = start[k]; i < start[k + 1]; ++i)
            keys[next[entries[i].row]++ - start[k]] = pack(entries[i].col, entries[i].source);
        for (int64_t r = first; r < last; ++r)
            finish_row(keys + (crow[r] - start[k]), keys + (next[r] - start[k]), sorted_col + crow[r],
                       source + crow[r]);
    }
    crow[n] = int32_t(count);
}

void expand_rows(int64_t n, const int32_t* crow, int32_t* row, int threads) {
#pragma omp parallel for num_threads(team(threads, crow[n] + n)) schedule(static)
    for (int64_t r = 0; r < n; ++r) std::fill(row + crow[r], row + crow[r + 1], int32_t(r));
}

// The CSR matrix with node order[p] moved to position p. Writes rank, the inverse of order, as well.
void permute(int64_t n, const int32_t* crow, const int32_t* col, const int64_t* order, int64_t* rank,
             int32_t* new_crow, int32_t* new_col, int32_t* source, int threads) {
    constexpr int64_t kBlock = 256;  // rows: gathering and sorting take turns, both run better undisturbed
    int64_t largest = 0;
    new_crow[0] = 0;
    for (int64_t p = 0; p < n; ++p) {
        rank[order[p]] = p;
        new_crow[p + 1] = new_crow[p] + crow[order[p] + 1] - crow[order[p]];
        largest = std::max<int64_t>(largest, new_crow[p + 1] - new_crow[p / kBlock * kBlock]);
    }
    threads = team(threads, crow[n] + n);
    const auto room = unset<uint64_t>(threads * largest);  // for one block a thread
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4)
    for (int64_t block = 0; block < n; block += kBlock) {
        const int64_t stop = std::min(n, block + kBlock);
        uint64_t *const keys = &room[omp_get_thread_num() * largest], *key = keys;
        for (int64_t p = block; p < stop; ++p) {
            __builtin_prefetch(&col[crow[order[std::min(p + 16, n - 1)]]]);  // rows come from anywhere
            const int32_t begin = crow[order[p]], end = crow[order[p] + 1];
            for (int32_t e = begin; e < end; ++e) *key++ = pack(rank[col[e]], e);
        }
        for (int64_t p = block; p < stop; ++p)
            finish_row(keys + (new_crow[p] - new_crow[block]), keys + (new_crow[p + 1] - new_crow[block]),
                       new_col + new_crow[p], source + new_crow[p]);
    }
}

// Whether the matrix equals its transpose: as many entries above the diagonal as below, each of which has its twin.
template <class T>
bool is_symmetric(int64_t n, const int32_t* crow, const int32_t* col, const T* value, int threads) {
    bool same = true;
    int64_t surplus = 0;
#pragma omp parallel for num_threads(team(threads, crow[n] + n)) schedule(dynamic, 4096) reduction(&& : same) \
    reduction(+ : surplus)
    for (int64_t r = 0; r < n; ++r)
        for (int32_t e = crow[r]; e < crow[r + 1] && same; ++e) {
            const int32_t c = col[e];
            surplus += (c > r) - (c < r);
            if (c >= r) continue;
            const int32_t *end = col + crow[c + 1], *twin = std::lower_bound(col + crow[c], end, int32_t(r));
            same = twin < end && *twin == r && value[twin - col] == value[e];
        }
    return same && surplus == 0;
}

// ------------------------------------------------------------------------------------------------- node order
struct Edge {
    int32_t to;
    uint32_t weight;
};

// An undirected graph: node u has edges begin[u] ... end[u] - 1, in no particular order. Numbers of edges are unsigned
// because both directions of 2^31 entries are counted.
struct Graph {
    int64_t n;
    Array<uint32_t> begin, end;
    Array<uint32_t> volume;  // the weights of a node's edges; of a group, those of its nodes
    Array<int32_t> best;     // the strongest neighbour, or the node itself if it has none
    Array<Edge> edges;

    Graph() = default;
    explicit Graph(int64_t n)
        : n(n), begin(unset<uint32_t>(n)), end(unset<uint32_t>(n)), volume(unset<uint32_t>(n)), best(unset<int32_t>(n)) {}
};

uint32_t scramble(uint32_t x) {  // the last steps of MurmurHash3: a bijection
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

float pull(uint32_t volume) { return 1 / std::sqrt(std::sqrt(float(volume))); }

int32_t strongest_neighbour(const Graph& g, int64_t u, const float* pulls) {
    uint64_t strongest = 0;
    int32_t choice = int32_t(u);
    for (uint32_t e = g.begin[u]; e < g.end[u]; ++e) {
        const Edge edge = g.edges[e];
        const float strength = float(edge.weight) * pulls[edge.to];
        uint32_t bits;  // positive floats compare as their bits do
        std::memcpy(&bits, &strength, sizeof bits);
        const uint64_t key = uint64_t(bits) << 32 | scramble(uint32_t(u ^ edge.to));
        if (key > strongest) strongest = key, choice = edge.to;
    }
    return choice;
}

// Writes a group for every node; returns the number of groups.
int64_t merge(const Graph& g, uint32_t level, int32_t* group, int threads) {
    const int32_t* best = g.best.get();
    const auto leads = unset<bool>(g.n), stays = unset<bool>(g.n), joins = unset<bool>(g.n);
    int32_t groups = 0;
#pragma omp parallel num_threads(team(threads, g.n))
    {  // no branches: nobody could predict them
#pragma omp for schedule(static)
        for (int64_t u = 0; u < g.n; ++u) {
            const int32_t v = best[u];
            const uint32_t mine = g.volume[u], other = g.volume[v];
            leads[u] = (best[v] == u) & ((mine > other) | ((mine == other) & (u <= v)));
        }
#pragma omp for schedule(static)
        for (int64_t u = 0; u < g.n; ++u) {
            const bool coin = scramble(uint32_t(u) + level * 0x9e3779b9u) & 1;
            stays[u] = leads[u] | (coin & !leads[best[u]]);
        }
#pragma omp for schedule(static)
        for (int64_t u = 0; u < g.n; ++u) joins[u] = !stays[u] & stays[best[u]];
#pragma omp single
        for (int64_t u = 0; u < g.n; ++u) group[u] = groups, groups += !joins[u];
#pragma omp for schedule(static)
        for (int64_t u = 0; u < g.n; ++u) group[u] = group[joins[u] ? best[u] : u];
    }
    return groups;
}

// The nodes group by group, in ascending order: group k has nodes node[start[k]] ... node[start[k + 1] - 1].
struct Members {
    Array<int32_t> start, node;

    Members(int64_t n, const int32_t* group, int64_t groups)
        : start(new int32_t[groups + 2]()), node(unset<int32_t>(n)) {
        for (int64_t u = 0; u < n; ++u) ++start[group[u] + 2];
        std::partial_sum(&start[0], &start[0] + groups + 2, &start[0]);
        for (int64_t u = 0; u < n; ++u) node[start[group[u] + 1]++] = int32_t(u);
    }
};

// The graph of the groups: weights between two groups are added up, weights inside a group are dropped. Spoils g.
// `spare` is a larger graph that is no longer needed, or an empty one: its memory is used again.
Graph contract(Graph& g, const int32_t* group, int64_t groups, const Members& members, Graph spare, int threads) {
    Graph to(groups);
    to.edges = std::move(spare.edges);
    const auto pulls = unset<float>(groups);
    threads = team(threads, g.end[g.n - 1] + g.n);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t u = 0; u < g.n; ++u)
            for (uint32_t e = g.begin[u]; e < g.end[u]; ++e) g.edges[e].to = group[g.edges[e].to];
#pragma omp for schedule(static)
        for (int64_t k = 0; k < groups; ++k) {
            to.end[k] = to.volume[k] = 0;
            for (int32_t m = members.start[k]; m < members.start[k + 1]; ++m) {
                to.end[k] += g.end[members.node[m]] - g.begin[members.node[m]];
                to.volume[k] += g.volume[members.node[m]];
            }
            pulls[k] = pull(to.volume[k]);
        }
    }
    uint32_t room = 0;
    for (int64_t k = 0; k < groups; ++k) to.begin[k] = std::exchange(room, room + to.end[k]);
    if (!to.edges) to.edges = unset<Edge>(room);
    std::vector<uint32_t> seen_at(threads * groups, ~0u);  // where a group stands in the list that a thread writes
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1024)
    for (int64_t k = 0; k < groups; ++k) {
        uint32_t* seen = &seen_at[omp_get_thread_num() * groups];
        const uint32_t begin = to.begin[k];
        uint32_t end = begin;
        for (int32_t m = members.start[k]; m < members.start[k + 1]; ++m) {
            __builtin_prefetch(&g.edges[g.begin[members.node[std::min<int64_t>(m + 8, g.n - 1)]]]);
            for (uint32_t e = g.begin[members.node[m]]; e < g.end[members.node[m]]; ++e) {
                uint32_t& at = seen[g.edges[e].to];
                if (at >= begin && at < end) {  // else it was written for another group, or never
                    to.edges[at].weight += g.edges[e].weight;
                } else {
                    to.edges[end] = g.edges[e];
                    at = end++;
                }
            }
        }
        const uint32_t own = seen[k];  // edges inside the group: the last one takes their place
        if (own >= begin && own < end) to.edges[own] = to.edges[--end];
        to.end[k] = end;
        to.best[k] = strongest_neighbour(to, k, pulls.get());  // now, while its edges are at hand
    }
    return to;
}

// A + A' with its weights 1 and 2, without self-loops. If A is symmetric that is A itself, twice. Whether it is shows a
// sum in which the entries (i, j) and (j, i) cancel out; in other graphs it is zero once in 2^64, and the order worse.
Graph undirected(int64_t n, const int32_t* crow, const int32_t* col, int threads) {
    const int64_t count = crow[n];
    Graph g(n);
    g.edges = unset<Edge>(count);
    const auto pulls = unset<float>(n);
    uint64_t sum = 0;
#pragma omp parallel for num_threads(team(threads, count + n)) schedule(static) reduction(+ : sum)
    for (int64_t u = 0; u < n; ++u) {
        uint32_t end = g.begin[u] = uint32_t(crow[u]);
        for (int32_t e = crow[u]; e < crow[u + 1]; ++e) {
            const uint64_t low = std::min<uint64_t>(u, col[e]), high = std::max<uint64_t>(u, col[e]);
            uint64_t pair = (high << 32 | low) * 0x9e3779b97f4a7c15u;
            pair = (pair ^ pair >> 32) * 0xd6e8feb86659fd93u;
            pair ^= pair >> 32;
            sum += low == high ? 0 : uint64_t(u) == low ? pair : -pair;
            g.edges[end] = {col[e], 2};
            end += low != high;
        }
        g.end[u] = end;
        g.volume[u] = 2 * (end - g.begin[u]);
        pulls[u] = pull(g.volume[u]);
    }
    if (sum == 0) {
#pragma omp parallel for num_threads(team(threads, count + n)) schedule(dynamic, 1024)
        for (int64_t u = 0; u < n; ++u) g.best[u] = strongest_neighbour(g, u, pulls.get());
        return g;
    }
    g.edges = unset<Edge>(2 * count);
    std::vector<uint32_t> into(n);
    for (int64_t e = 0; e < count; ++e) ++into[col[e]];
    uint32_t place = 0;
    for (int64_t u = 0; u < n; ++u) {
        g.begin[u] = g.end[u] = place;
        place += into[u] + uint32_t(crow[u + 1] - crow[u]);
    }
    for (int64_t u = 0; u < n; ++u)
        for (int32_t e = crow[u]; e < crow[u + 1]; ++e)
            if (col[e] != u) g.edges[g.end[u]++] = {col[e], 1}, g.edges[g.end[col[e]]++] = {int32_t(u), 1};
    for (int64_t u = 0; u < n; ++u) g.volume[u] = g.end[u] - g.begin[u];
    std::vector<int32_t> itself(n);
    std::iota(itself.begin(), itself.end(), 0);
    return contract(g, itself.data(), n, Members(n, itself.data(), n), {}, threads);
}

void order_nodes(int64_t n, const int32_t* crow, const int32_t* col, int64_t* order, int threads) {
    Graph g = undirected(n, crow, col, threads), spare;
    const auto group = unset<int32_t>(n);
    std::vector<Members> tree;
    for (uint32_t level = 0;; ++level) {
        const int64_t groups = merge(g, level, group.get(), threads);
        if (groups == g.n) break;
        tree.emplace_back(g.n, group.get(), groups);
        spare = contract(g, group.get(), groups, tree.back(), std::move(spare), threads);
        std::swap(g, spare);
    }
    auto sorted = unset<int32_t>(n), opened = unset<int32_t>(n);
    std::iota(&sorted[0], &sorted[0] + g.n, 0);
    int64_t groups = g.n;
    for (; !tree.empty(); tree.pop_back()) {
        const Members& members = tree.back();
        int64_t place = 0;
        for (int64_t k = 0; k < groups; ++k)
            for (int32_t m = members.start[sorted[k]]; m < members.start[sorted[k] + 1]; ++m)
                opened[place++] = members.node[m];
        groups = place;
        sorted.swap(opened);
    }
    std::copy(&sorted[0], &sorted[0] + n, order);
}

template <class Work>
int attempt(Work work) {
    try {
        return work(), 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace

// All return 0, or 1 when scratch memory could not be had.
#define EXPORT(Index, suffix)                                                                                          \
    extern "C" int pprgnn_sort_##suffix(int64_t n, int64_t count, const Index* row, const Index* col, int32_t* crow,  \
                                        int32_t* sorted_col, int32_t* source, int threads) {                          \
        return attempt([=] { sort_entries(n, count, row, col, crow, sorted_col, source, threads); });                 \
    }
EXPORT(int32_t, i32)
EXPORT(int64_t, i64)
#undef EXPORT

#define EXPORT(T, suffix)                                                                                              \
    extern "C" int pprgnn_symmetric_##suffix(int64_t n, const int32_t* crow, const int32_t* col, const T* value,      \
                                             int32_t* answer, int threads) {                                          \
        return *answer = is_symmetric(n, crow, col, value, threads), 0;                                               \
    }
EXPORT(float, f32)
EXPORT(double, f64)

extern "C" int pprgnn_rows(int64_t n, const int32_t* crow, int32_t* row, int threads) {
    return expand_rows(n, crow, row, threads), 0;
}

extern "C" int pprgnn_permute(int64_t n, const int32_t* crow, const int32_t* col, const int64_t* order,
                              int64_t* rank, int32_t* new_crow, int32_t* new_col, int32_t* source, int threads) {
    return attempt([=] { permute(n, crow, col, order, rank, new_crow, new_col, source, threads); });
}

extern "C" int pprgnn_order(int64_t n, const int32_t* crow, const int32_t* col, int64_t* order, int threads) {
    return attempt([=] { order_nodes(n, crow, col, order, threads); });
}
