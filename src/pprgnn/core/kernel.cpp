// One step of the recursion in one pass over memory, for CPUs.
//
// A step is a sparse product, a dense product, an addition and an activation. Done one after the other they move the
// n x d state through memory five times. Here a thread takes a block of rows small enough for its cache, gathers the
// neighbours (sparse product), multiplies by W (dense product) and finishes the rows before it takes the next block, so
// a step reads G and B once and writes G once. The backward step is fused the same way.
//
// Plain C interface, no Python and no torch headers: kernel.py loads it with ctypes. It is compiled once per
// instruction set; vectors are GCC/Clang vector extensions.
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

// Register tile of the dense product: kRows x (kVectors vectors). Sized so that accumulators fill the register file.
#if defined(__AVX512F__)
constexpr int kBytes = 64, kRows = 6, kVectors = 4;
#elif defined(__AVX2__)
constexpr int kBytes = 32, kRows = 6, kVectors = 2;
#else
constexpr int kBytes = 16, kRows = 4, kVectors = 2;
#endif
constexpr int kBlock = 96;   // rows per block; a multiple of every kRows
constexpr int kDepth = 128;  // rows of W per pass: a panel of W stays in the first-level cache
#define UNROLL _Pragma("GCC unroll 8")

template <class T>
struct Lanes {
    typedef T vec __attribute__((vector_size(kBytes)));
    typedef T loose __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
    static constexpr int count = kBytes / sizeof(T);
    static constexpr int panel = kVectors * count;  // columns of one register tile
};

template <class T>
typename Lanes<T>::vec load(const T* p) {
    return *reinterpret_cast<const typename Lanes<T>::loose*>(p);
}

template <class T>
void store(T* p, typename Lanes<T>::vec v) {
    *reinterpret_cast<typename Lanes<T>::loose*>(p) = v;
}

template <class T>
T* allocate(int64_t count) {
    int64_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    void* p = std::aligned_alloc(64, std::max<int64_t>(bytes, 64));
    if (p) std::memset(p, 0, bytes);
    return static_cast<T*>(p);
}

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

template <class T>
struct Graph {
    int64_t n, d;
    const int32_t *crow, *col;
    const T* value;
};

// Row ranges of equal work, one per thread; always the same for the same graph, so sums come out the same.
template <class T>
int64_t cut(const Graph<T>& g, int part, int parts) {
    const int64_t per_row = g.d / 8 + 4;  // a row's dense product costs about as much as that many neighbours
    const int64_t goal = (g.crow[g.n] + per_row * g.n) / parts * part;
    int64_t low = 0, high = g.n;
    if (part == parts) return g.n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (g.crow[middle] + per_row * middle < goal) low = middle + 1; else high = middle;
    }
    return low;
}

// out[r] = sum_j value_rj x[j] for rows [begin, end); `width` vectors of a row at a time.
template <class T, int width>
void gather_columns(const Graph<T>& g, const T* x, int64_t row, int64_t j, T* out) {
    typename Lanes<T>::vec sum[width] = {};
    for (int32_t e = g.crow[row]; e < g.crow[row + 1]; ++e) {
        const T* from = x + g.col[e] * g.d + j;
        UNROLL for (int v = 0; v < width; ++v) sum[v] += g.value[e] * load(from + v * Lanes<T>::count);
    }
    UNROLL for (int v = 0; v < width; ++v) store(out + j + v * Lanes<T>::count, sum[v]);
}

template <class T>
void gather(const Graph<T>& g, const T* x, int64_t begin, int64_t end, T* out, int64_t stride) {
    constexpr int L = Lanes<T>::count;
    for (int64_t row = begin; row < end; ++row, out += stride) {
        int64_t j = 0;
        for (; j + 8 * L <= g.d; j += 8 * L) gather_columns<T, 8>(g, x, row, j, out);
        for (; j + 4 * L <= g.d; j += 4 * L) gather_columns<T, 4>(g, x, row, j, out);
        for (; j + L <= g.d; j += L) gather_columns<T, 1>(g, x, row, j, out);
        for (; j < g.d; ++j) {
            T sum = 0;
            for (int32_t e = g.crow[row]; e < g.crow[row + 1]; ++e) sum += g.value[e] * x[g.col[e] * g.d + j];
            out[j] = sum;
        }
    }
}

// c (kRows x panel) = or += a' b, where a' has element (m, k) at a[m * a_row + k * a_col] and b is k x panel.
template <class T>
__attribute__((noinline)) void tile(const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, int64_t depth,
                                    T* c, int64_t c_row, bool fresh) {
    using vec = typename Lanes<T>::vec;
    constexpr int L = Lanes<T>::count;
    vec sum[kRows][kVectors];
    UNROLL for (int m = 0; m < kRows; ++m)
        UNROLL for (int v = 0; v < kVectors; ++v) sum[m][v] = fresh ? vec{} : load(c + m * c_row + v * L);
    for (int64_t k = 0; k < depth; ++k) {
        vec right[kVectors];
        UNROLL for (int v = 0; v < kVectors; ++v) right[v] = load(b + k * b_row + v * L);
        UNROLL for (int m = 0; m < kRows; ++m) {
            const T left = a[m * a_row + k * a_col];
            UNROLL for (int v = 0; v < kVectors; ++v) sum[m][v] += left * right[v];
        }
    }
    UNROLL for (int m = 0; m < kRows; ++m)
        UNROLL for (int v = 0; v < kVectors; ++v) store(c + m * c_row + v * L, sum[m][v]);
}

// W (d x d) as panels of `panel` columns, kDepth rows at a time, so that `tile` reads it front to back.
template <class T>
void pack(const T* w, int64_t d, T* packed) {
    constexpr int panel = Lanes<T>::panel;
    const int64_t width = round_up(d, panel);
    for (int64_t k0 = 0; k0 < d; k0 += kDepth) {
        const int64_t depth = std::min<int64_t>(kDepth, d - k0);
        for (int64_t j = 0; j < width; j += panel)
            for (int64_t k = 0; k < depth; ++k)
                for (int v = 0; v < panel; ++v)
                    packed[k0 * width + j * depth + k * panel + v] = j + v < d ? w[(k0 + k) * d + j + v] : T(0);
    }
}

// out (rows x width) = left (rows x d) W; rows are rounded up, the surplus ones hold zeros or old numbers.
template <class T>
void multiply(const T* left, const T* packed, int64_t rows, int64_t d, int64_t width, T* out) {
    constexpr int panel = Lanes<T>::panel;
    for (int64_t k0 = 0; k0 < d; k0 += kDepth) {
        const int64_t depth = std::min<int64_t>(kDepth, d - k0);
        for (int64_t j = 0; j < width; j += panel)
            for (int64_t r = 0; r < rows; r += kRows)
                tile<T>(left + r * width + k0, width, 1, packed + k0 * width + j * depth, panel, depth,
                        out + r * width + j, width, k0 == 0);
    }
}

// y = phi(beta * x + b) with phi(z) = z for z > 0, slope * z otherwise. beta may be null for 1, x null for 0.
template <class T>
void activate(const T* x, const T* beta, const T* b, T slope, int64_t d, T* y) {
    constexpr int L = Lanes<T>::count;
    int64_t j = 0;
    for (; j + L <= d; j += L) {
        auto z = load(b + j);
        if (x) z += load(beta + j) * load(x + j);
        auto low = slope * z + T(0);  // + 0 turns -0 into 0
        store(y + j, z > 0 ? z : low);
    }
    for (; j < d; ++j) {
        const T z = x ? beta[j] * x[j] + b[j] : b[j];
        y[j] = z > 0 ? z : slope * z + T(0);
    }
}

template <class T>
int forward(Graph<T> g, const T* b, const T* w, const T* eps, T slope, int64_t depth, T* const* states, int threads) {
    const int64_t d = g.d, width = round_up(d, Lanes<T>::panel);
    T* packed = allocate<T>(d * width);
    if (!packed) return 1;
    pack(w, d, packed);
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        const int parts = omp_get_num_threads(), part = omp_get_thread_num();
        const int64_t begin = cut(g, part, parts), end = cut(g, part + 1, parts);
        T *product = allocate<T>(kBlock * width), *out = allocate<T>(kBlock * width), *beta = allocate<T>(d);
        failed |= !(product && out && beta);
        if (!failed)
            for (int64_t row = begin; row < end; ++row)
                activate<T>(nullptr, nullptr, b + row * d, slope, d, states[depth] + row * d);
        for (int64_t n = depth - 1; n >= 0; --n) {
#pragma omp barrier
            if (failed) continue;
            for (int64_t j = 0; j < d; ++j) beta[j] = 1 / (1 + n * eps[j]);
            const T* g_next = states[n + 1];
            for (int64_t row = begin; row < end; row += kBlock) {
                const int64_t rows = std::min<int64_t>(kBlock, end - row);
                gather(g, g_next, row, row + rows, product, width);
                multiply(product, packed, rows, d, width, out);
                for (int64_t r = 0; r < rows; ++r)
                    activate(out + r * width, beta, b + (row + r) * d, slope, d, states[n] + (row + r) * d);
            }
        }
        std::free(product), std::free(out), std::free(beta);
    }
    std::free(packed);
    return failed;
}

// P = A' z; outer = below' P; and, when z_out is given, z_out = phi'(below) * (P W') and b_bar += z_out.
template <class T>
int adjoint(Graph<T> g, const T* w_t, const T* z, const T* below, T slope, T* z_out, T* b_bar, T* outer, int threads) {
    const int64_t d = g.d, width = round_up(d, Lanes<T>::panel), tall = round_up(d, kRows), stride = width + kRows;
    T* packed = allocate<T>(d * width);
    if (!packed) return 1;
    pack(w_t, d, packed);
    std::vector<T*> sums(threads, nullptr);
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        const int parts = omp_get_num_threads(), part = omp_get_thread_num();
        const int64_t begin = cut(g, part, parts), end = cut(g, part + 1, parts);
        T *product = allocate<T>(kBlock * width), *g_bar = allocate<T>(kBlock * width);
        T *state = allocate<T>(kBlock * stride), *sum = allocate<T>(tall * width);
        sums[part] = sum;
        failed |= !(product && g_bar && state && sum);
        for (int64_t row = begin; row < end && !failed; row += kBlock) {
            const int64_t rows = std::min<int64_t>(kBlock, end - row);
            gather(g, z, row, row + rows, product, width);
            for (int64_t r = 0; r < rows; ++r)
                std::memcpy(state + r * stride, below + (row + r) * d, d * sizeof(T));
            for (int64_t i = 0; i < tall; i += kRows)
                for (int64_t j = 0; j < width; j += Lanes<T>::panel)
                    tile<T>(state + i, 1, stride, product + j, width, rows, sum + i * width + j, width, false);
            if (!z_out) continue;
            multiply(product, packed, rows, d, width, g_bar);
            for (int64_t r = 0; r < rows; ++r) {
                const T *bar = g_bar + r * width, *at = state + r * stride;
                T *to = z_out + (row + r) * d, *total = b_bar ? b_bar + (row + r) * d : nullptr;
                for (int64_t j = 0; j < d; ++j) to[j] = bar[j] * (at[j] > 0 ? T(1) : slope);
                if (total) for (int64_t j = 0; j < d; ++j) total[j] += to[j];
            }
        }
#pragma omp barrier
        if (!failed)  // every thread adds up its share of the partial sums, always in the same order
            for (int64_t i = d * part / parts; i < d * (part + 1) / parts; ++i)
                for (int64_t j = 0; j < d; ++j) {
                    T all = 0;
                    for (int p = 0; p < parts; ++p) all += sums[p] ? sums[p][i * width + j] : T(0);
                    outer[i * d + j] = all;
                }
#pragma omp barrier
        std::free(product), std::free(g_bar), std::free(state), std::free(sum);
    }
    std::free(packed);
    return failed;
}

}  // namespace

// Both return 0, or 1 when scratch memory could not be had.
#define EXPORT(T, suffix)                                                                                              \
    extern "C" int pprgnn_forward_##suffix(int64_t n, int64_t d, const int32_t* crow, const int32_t* col,             \
                                           const T* value, const T* b, const T* w, const T* eps, double slope,        \
                                           int64_t depth, T* const* states, int threads) {                            \
        return forward<T>({n, d, crow, col, value}, b, w, eps, T(slope), depth, states, threads);                     \
    }                                                                                                                  \
    extern "C" int pprgnn_adjoint_##suffix(int64_t n, int64_t d, const int32_t* crow, const int32_t* col,             \
                                           const T* value, const T* w_t, const T* z, const T* below, double slope,    \
                                           T* z_out, T* b_bar, T* outer, int threads) {                               \
        return adjoint<T>({n, d, crow, col, value}, w_t, z, below, T(slope), z_out, b_bar, outer, threads);           \
    }
EXPORT(float, f32)
EXPORT(double, f64)
