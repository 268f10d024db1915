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
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
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
constexpr int32_t kAhead = 16;  // edges
#define UNROLL _Pragma("GCC unroll 8")

template <class T>
struct Lanes {
    typedef T vec __attribute__((vector_size(kBytes)));
    typedef T loose __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
    static constexpr int count = kBytes / sizeof(T);
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

// Further entries of the same rows, which read rows of x: what other processes sent. crow is null where there are none.
template <class T>
struct Far {
    const int32_t *crow, *col;
    const T *value, *x;
    int64_t first;  // the row that crow begins with
};

struct Rows {
    int64_t begin, end;
};

// The rows of a thread, ranges of equal work; always the same for the same graph, so sums come out the same.
template <class T>
int64_t cut(const Graph<T>& g, Rows all, int part, int parts) {
    const int64_t per_row = g.d / 8 + 4;  // a row's dense product costs about as much as that many neighbours
    const auto work = [&](int64_t row) { return g.crow[row] + per_row * row; };
    const int64_t goal = work(all.begin) + (work(all.end) - work(all.begin)) / parts * part;
    int64_t low = all.begin, high = all.end;
    if (part == parts) return all.end;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (work(middle) < goal) low = middle + 1; else high = middle;
    }
    return low;
}

template <class T>
Rows my_rows(const Graph<T>& g, Rows all) {
    const int parts = omp_get_num_threads(), part = omp_get_thread_num();
    return {cut(g, all, part, parts), cut(g, all, part + 1, parts)};
}

// out[r] = sum_j value_rj x[j] for rows [begin, end); `width` vectors of a row at a time. Which rows come next only
// the graph knows, not the hardware, so they are fetched ahead.
template <class T, int width>
void gather_columns(const Graph<T>& g, const T* x, int64_t row, int64_t j, T* out) {
    typename Lanes<T>::vec sum[width] = {};
    for (int32_t e = g.crow[row]; e < g.crow[row + 1]; ++e) {
        const T* from = x + g.col[e] * g.d + j;
        const T* ahead = x + g.col[std::min(e + kAhead, g.crow[g.n] - 1)] * g.d + j;
        UNROLL for (unsigned v = 0; v < width * kBytes / 64; ++v) __builtin_prefetch(ahead + v * 64 / sizeof(T));
        UNROLL for (int v = 0; v < width; ++v) sum[v] += g.value[e] * load(from + v * Lanes<T>::count);
    }
    UNROLL for (int v = 0; v < width; ++v) store(out + j + v * Lanes<T>::count, sum[v]);
}

template <class T>
T gather_one(const Graph<T>& g, const T* x, int64_t row, int64_t j) {
    T sum = 0;
    for (int32_t e = g.crow[row]; e < g.crow[row + 1]; ++e) sum += g.value[e] * x[g.col[e] * g.d + j];
    return sum;
}

template <class T>
void gather(const Graph<T>& g, const T* x, int64_t begin, int64_t end, T* out, int64_t stride) {
    constexpr int L = Lanes<T>::count;
    for (int64_t row = begin; row < end; ++row, out += stride) {
        int64_t j = 0;
        for (; j + 8 * L <= g.d; j += 8 * L) gather_columns<T, 8>(g, x, row, j, out);
        for (; j + 4 * L <= g.d; j += 4 * L) gather_columns<T, 4>(g, x, row, j, out);
        for (; j + L <= g.d; j += L) gather_columns<T, 1>(g, x, row, j, out);
        for (; j < g.d; ++j) out[j] = gather_one(g, x, row, j);
    }
}

template <class T>
void gather_far(const Far<T>& far, int64_t d, int64_t begin, int64_t end, T* out, int64_t stride) {
    constexpr int L = Lanes<T>::count;
    if (!far.crow) return;
    for (int64_t row = begin; row < end; ++row, out += stride)
        for (int32_t e = far.crow[row - far.first]; e < far.crow[row - far.first + 1]; ++e) {
            const T *from = far.x + far.col[e] * d, value = far.value[e];
            int64_t j = 0;
            for (; j + L <= d; j += L) store(out + j, load(out + j) + value * load(from + j));
            for (; j < d; ++j) out[j] += value * from[j];
        }
}

// c (kRows x panel) = or += a' b, where a' has element (m, k) at a[m * a_row + k * a_col] and b is k x panel, of
// `vectors` vectors.
template <class T, int vectors>
__attribute__((noinline)) void tile(const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, int64_t depth,
                                    T* c, int64_t c_row, bool fresh) {
    using vec = typename Lanes<T>::vec;
    constexpr int L = Lanes<T>::count;
    vec sum[kRows][vectors];
    UNROLL for (int m = 0; m < kRows; ++m)
        UNROLL for (int v = 0; v < vectors; ++v) sum[m][v] = fresh ? vec{} : load(c + m * c_row + v * L);
    for (int64_t k = 0; k < depth; ++k) {
        vec right[vectors];
        UNROLL for (int v = 0; v < vectors; ++v) right[v] = load(b + k * b_row + v * L);
        UNROLL for (int m = 0; m < kRows; ++m) {
            const T left = a[m * a_row + k * a_col];
            UNROLL for (int v = 0; v < vectors; ++v) sum[m][v] += left * right[v];
        }
    }
    UNROLL for (int m = 0; m < kRows; ++m)
        UNROLL for (int v = 0; v < vectors; ++v) store(c + m * c_row + v * L, sum[m][v]);
}

// Register tiles as wide as suits the channels: of a wide one, a narrow state would fill a part only.
template <class T>
struct Panel {
    int columns;
    decltype(&tile<T, 1>) tile;

    explicit Panel(int64_t d) {
        constexpr int L = Lanes<T>::count;
        if (d <= L) columns = L, tile = pick<1>();
        else if (d <= 2 * L || kVectors == 2) columns = 2 * L, tile = pick<2>();
        else columns = kVectors * L, tile = pick<kVectors>();
    }
    template <int vectors>
    static decltype(&::tile<T, 1>) pick() { return &::tile<T, vectors>; }
    int64_t width(int64_t d) const { return round_up(d, columns); }
};

// W (d x d) as panels of `panel` columns, kDepth rows at a time, so that `tile` reads it front to back.
template <class T>
void pack(const T* w, int64_t d, T* packed) {
    const int panel = Panel<T>(d).columns;
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
    const Panel<T> panel(d);
    for (int64_t k0 = 0; k0 < d; k0 += kDepth) {
        const int64_t depth = std::min<int64_t>(kDepth, d - k0);
        for (int64_t j = 0; j < width; j += panel.columns)
            for (int64_t r = 0; r < rows; r += kRows)
                panel.tile(left + r * width + k0, width, 1, packed + k0 * width + j * depth, panel.columns, depth,
                           out + r * width + j, width, k0 == 0);
    }
}

// phi is told by a number: a slope in [0, 1] for phi(z) = z where z > 0 and slope * z elsewhere, or kTanh.
constexpr int kTanh = 2;

// tanh z = m / (m + 2) with m = exp(2|z|) - 1 = 2^n q + (2^n - 1), where q = exp(r) - 1 by its power series, |r| <=
// log(2) / 2: nothing cancels, so the error is a few units in the last place. A NaN stays one.
template <class T>
typename Lanes<T>::vec tanh_of(typename Lanes<T>::vec z) {
    using vec = typename Lanes<T>::vec;
    constexpr bool wide = sizeof(T) == 8;
    typedef typename std::conditional<wide, int64_t, int32_t>::type whole;
    typedef whole wholes __attribute__((vector_size(kBytes)));
    constexpr int mantissa = wide ? 52 : 23, terms = wide ? 14 : 8;
    constexpr T one = T(whole(1) << (mantissa - 1)) * 3;  // added to n, its last bits are those of n
    constexpr T largest = wide ? 44 : 20;               // from there on tanh is 1, or rounds to it
    constexpr T log2_high = wide ? 0.69314718060195446014404296875 : 0.693359375;  // n times it is exact
    constexpr T log2_low = wide ? -4.2009150726810847291823e-11 : -2.1219444005469058277e-4;
    vec y = 2 * (z < 0 ? -z : z);
    y = y < largest ? y : vec{} + largest;
    const vec shifted = y * T(1.44269504088896340736) + one, n = shifted - one;
    const vec r = (y - n * log2_high) - n * log2_low;
    vec q = {};
    T inverse[terms + 1] = {1};  // of the factorials
    for (int k = 1; k <= terms; ++k) inverse[k] = inverse[k - 1] / k;
    UNROLL for (int k = terms; k >= 2; --k) q = q * r + inverse[k];
    q = q * r * r + r;
    const vec power = (vec)(((wholes)shifted << mantissa) + (whole(wide ? 1023 : 127) << mantissa));  // 2^n
    const vec m = power * q + (power - 1), size = m / (m + 2);
    return z != z ? z : z < 0 ? -size : size;
}

template <class T, bool is_tanh>
typename Lanes<T>::vec activated(typename Lanes<T>::vec z, T phi) {
    if constexpr (is_tanh) return tanh_of<T>(z);
    const auto low = phi * z + T(0);  // + 0 turns -0 into 0
    return z > 0 ? z : low;
}

// phi'(at) * bar; phi' is read off the state.
template <class T, bool is_tanh>
typename Lanes<T>::vec pulled(typename Lanes<T>::vec bar, typename Lanes<T>::vec at, T phi) {
    if constexpr (is_tanh) return bar - bar * at * at;
    const auto low = phi * bar + T(0);
    return at > 0 ? bar : low;
}

// A vector at a time: work(j, Whole()) for those from j on, and at the end work(j, count) for what fills no vector.
struct Whole {};

template <class T, class Work>
void by_vectors(int64_t d, Work work) {
    constexpr int L = Lanes<T>::count;
    int64_t j = 0;
    for (; j + L <= d; j += L) work(j, Whole());
    if (j < d) work(j, int(d - j));
}

template <class T>
typename Lanes<T>::vec load(const T* p, Whole) {
    return load(p);
}

template <class T>
typename Lanes<T>::vec load(const T* p, int count) {
    typename Lanes<T>::vec v = {};
    std::memcpy(&v, p, count * sizeof(T));
    return v;
}

template <class T>
void store(T* p, typename Lanes<T>::vec v, Whole) {
    store(p, v);
}

template <class T>
void store(T* p, typename Lanes<T>::vec v, int count) {
    std::memcpy(p, &v, count * sizeof(T));
}

template <class T, bool is_tanh>
__attribute__((noinline)) void activate_as(const T* x, const T* beta, const T* b, T phi, int64_t d, T* y, const T* at) {
    by_vectors<T>(d, [=](int64_t j, auto count) {
        auto z = load(b + j, count);
        if (x) z += load(beta + j, count) * load(x + j, count);
        store(y + j, at ? pulled<T, is_tanh>(z, load(at + j, count), phi) : activated<T, is_tanh>(z, phi), count);
    });
}

// y = phi(beta * x + b); x may be null for 0. Given a state `at`, phi'(at) * (beta * x + b) instead: a step of the
// adjoint of an equilibrium.
template <class T>
void activate(const T* x, const T* beta, const T* b, T phi, int64_t d, T* y, const T* at = nullptr) {
    (phi == kTanh ? activate_as<T, true> : activate_as<T, false>)(x, beta, b, phi, d, y, at);
}

template <class T, bool is_tanh>
void chain_as(const T* bar, const T* at, T phi, int64_t d, T* z, T* total) {
    by_vectors<T>(d, [=](int64_t j, auto count) {
        const auto result = pulled<T, is_tanh>(load(bar + j, count), load(at + j, count), phi);
        store(z + j, result, count);
        store(total + j, load(total + j, count) + result, count);
    });
}

// z = phi'(at) * bar, added to total.
template <class T>
void chain(const T* bar, const T* at, T phi, int64_t d, T* z, T* total) {
    (phi == kTanh ? chain_as<T, true> : chain_as<T, false>)(bar, at, phi, d, z, total);
}

// What a thread works in, a block of rows at a time.
template <class T>
struct Scratch {
    T *product, *out, *beta;

    explicit Scratch(int64_t width)
        : product(allocate<T>(kBlock * width)), out(allocate<T>(kBlock * width)), beta(allocate<T>(width)) {}
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(product), std::free(out), std::free(beta); }
    bool failed() const { return !(product && out && beta); }
    void decay(int64_t n, const T* eps, int64_t d) {
        for (int64_t j = 0; j < d; ++j) beta[j] = 1 / (1 + n * eps[j]);
    }
};

// Rows of one step, target(row) = φ(β (A g)[row] W + b[row]); `beta` of the scratch holds β. mask: see activate.
template <class T, class Target, class Mask>
void step_rows(const Graph<T>& g, const Far<T>& far, Rows rows, const T* packed, int64_t width, const T* b, T phi,
               const T* state, const Scratch<T>& scratch, Target target, Mask mask) {
    for (int64_t row = rows.begin; row < rows.end; row += kBlock) {
        const int64_t count = std::min<int64_t>(kBlock, rows.end - row);
        gather(g, state, row, row + count, scratch.product, width);
        gather_far(far, g.d, row, row + count, scratch.product, width);
        multiply(scratch.product, packed, count, g.d, width, scratch.out);
        for (int64_t r = 0; r < count; ++r)
            activate(scratch.out + r * width, scratch.beta, b + (row + r) * g.d, phi, g.d, target(row + r),
                     mask(row + r));
    }
}

// The given rows of states[i] = G(first + i) for i = steps - 1 ... 0, each from the one before it; rows that come from
// elsewhere are good for a single step. With an order, row r of states[0] goes to row order[r]: where the caller wants
// it. `warm`: states[steps] is already there. `at`: see activate.
template <class T>
int descend(Graph<T> g, Far<T> far, Rows all, const T* b, const T* w, const T* eps, T phi, int64_t first,
            int64_t steps, T* const* states, const int64_t* order, const T* at, bool warm, int threads) {
    const int64_t d = g.d, width = Panel<T>(d).width(d);
    T* packed = allocate<T>(d * width);
    if (!packed) return 1;
    pack(w, d, packed);
    const auto target = [=](int64_t i, int64_t row) { return states[i] + (i == 0 && order ? order[row] : row) * d; };
    const auto mask = [=](int64_t row) { return at ? at + row * d : nullptr; };
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        const Rows rows = my_rows(g, all);
        Scratch<T> scratch(width);
        failed |= scratch.failed();
        if (!failed && !warm)
            for (int64_t row = rows.begin; row < rows.end; ++row)
                activate<T>(nullptr, nullptr, b + row * d, phi, d, target(steps, row), mask(row));
        for (int64_t i = steps - 1; i >= 0; --i) {
#pragma omp barrier
            if (failed) continue;
            scratch.decay(first + i, eps, d);
            step_rows(g, far, rows, packed, width, b, phi, states[i + 1], scratch,
                      [=](int64_t row) { return target(i, row); }, mask);
        }
    }
    std::free(packed);
    return failed;
}

// Scratch of the adjoint: a block of a state in rows of `stride`, so that `tile` can read it by columns, and the
// sums over the rows of a thread: G'P of one term and of all (W̄), and ε̄.
template <class T>
struct AdjointScratch : Scratch<T> {
    T *state, *term, *sum, *rate;
    int64_t tall, stride;

    AdjointScratch(int64_t d, int64_t width)
        : Scratch<T>(width), tall(round_up(d, kRows)), stride(width + kRows) {
        state = allocate<T>(kBlock * stride), rate = allocate<T>(d);
        term = allocate<T>(tall * width), sum = allocate<T>(tall * width);
    }
    ~AdjointScratch() {
        for (T* each : {state, term, sum, rate}) std::free(each);
    }
    bool failed() const { return Scratch<T>::failed() || !(state && term && sum && rate); }
};

// Rows of one term: P = A' Z̄ β; term += G' P; and, unless `last`, the next Z̄ = φ'(G) ∘ (P W') with B̄ += Z̄.
template <class T>
void adjoint_rows(const Graph<T>& g, const Far<T>& far, Rows rows, const T* packed, int64_t width, T phi,
                  const T* z, const T* below, bool last, T* next, T* b_bar, const AdjointScratch<T>& scratch) {
    const Panel<T> panel(g.d);
    const int64_t d = g.d, stride = scratch.stride;
    T *product = scratch.product, *state = scratch.state;
    for (int64_t row = rows.begin; row < rows.end; row += kBlock) {
        const int64_t count = std::min<int64_t>(kBlock, rows.end - row);
        gather(g, z, row, row + count, product, width);
        gather_far(far, d, row, row + count, product, width);
        for (int64_t r = 0; r < count; ++r) {
            for (int64_t j = 0; j < width; ++j) product[r * width + j] *= scratch.beta[j];
            std::memcpy(state + r * stride, below + (row + r) * d, d * sizeof(T));
        }
        for (int64_t i = 0; i < scratch.tall; i += kRows)
            for (int64_t j = 0; j < width; j += panel.columns)
                panel.tile(state + i, 1, stride, product + j, width, count, scratch.term + i * width + j, width, false);
        if (last) continue;
        multiply(product, packed, count, d, width, scratch.out);
        for (int64_t r = 0; r < count; ++r)
            chain(scratch.out + r * width, state + r * stride, phi, d, next + (row + r) * d, b_bar + (row + r) * d);
    }
}

// What a term adds to W̄ also gives its share of ε̄ = dβₙ/dε / βₙ · (W ∘ G'P summed over rows).
template <class T>
void finish_term(int64_t n, int64_t d, int64_t width, const T* w, AdjointScratch<T>& scratch) {
    for (int64_t i = 0; i < d; ++i)
        for (int64_t j = 0; j < d; ++j) {
            T& found = scratch.term[i * width + j];
            scratch.rate[j] -= n * scratch.beta[j] * w[i * d + j] * found;
            scratch.sum[i * width + j] += std::exchange(found, T(0));
        }
}

// Adds up what the threads found, always in the same order, on top of what is there.
template <class T>
void add_up(const std::vector<AdjointScratch<T>*>& parts, Rows rows, int64_t d, int64_t width, T* w_bar, T* eps_bar) {
    for (int64_t i = rows.begin; i < rows.end; ++i)
        for (const auto* part : parts) {
            if (!part) continue;
            eps_bar[i] += part->rate[i];
            for (int64_t j = 0; j < d; ++j) w_bar[i * d + j] += part->sum[i * width + j];
        }
}

// The given rows of the terms n = first ... first + products - 1, see adjoint_rows: from Z̄(first), which is in z[0],
// with G = states[i], which is G(n + 1), and the next Z̄ while n + 1 < terms. z[0] and z[1] alternate. B̄, W̄ and ε̄ are
// added to what is there. Rows that come from elsewhere are good for a single term.
template <class T>
int ascend(Graph<T> g, Far<T> far, Rows all, const T* w, const T* w_t, const T* eps, T phi, int64_t first,
           int64_t products, int64_t terms, const T* const* states, T* const* z, T* b_bar, T* w_bar, T* eps_bar,
           int threads) {
    const int64_t d = g.d, width = Panel<T>(d).width(d);
    T* packed = allocate<T>(d * width);
    if (!packed) return 1;
    pack(w_t, d, packed);
    std::vector<AdjointScratch<T>*> parts(threads, nullptr);
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        const int team = omp_get_num_threads(), part = omp_get_thread_num();
        const Rows rows = my_rows(g, all);
        AdjointScratch<T> scratch(d, width);
        failed |= scratch.failed();
        if (!failed) parts[part] = &scratch;
        for (int64_t i = 0; i < products; ++i) {
            const int64_t n = first + i;
            if (!failed) {
                scratch.decay(n, eps, d);
                adjoint_rows(g, far, rows, packed, width, phi, z[i % 2], states[i], n + 1 == terms, z[(i + 1) % 2],
                             b_bar, scratch);
                finish_term(n, d, width, w, scratch);
            }
#pragma omp barrier
        }
        if (!failed) add_up(parts, {d * part / team, d * (part + 1) / team}, d, width, w_bar, eps_bar);
#pragma omp barrier
    }
    std::free(packed);
    return failed;
}

// out = A x, some columns at a time: a slab of x then stays in the cache however wide x is.
template <class T>
int product(Graph<T> g, const T* x, T* out, int threads) {
    constexpr int L = Lanes<T>::count;
#pragma omp parallel num_threads(threads)
    {
        const auto [begin, end] = my_rows(g, {0, g.n});
        int64_t j = 0;
        for (; j + 8 * L <= g.d; j += 8 * L)
            for (int64_t row = begin; row < end; ++row) gather_columns<T, 8>(g, x, row, j, out + row * g.d);
        for (; j + L <= g.d; j += L)
            for (int64_t row = begin; row < end; ++row) gather_columns<T, 1>(g, x, row, j, out + row * g.d);
        for (int64_t row = begin; row < end && j < g.d; ++row)
            for (int64_t i = j; i < g.d; ++i) out[row * g.d + i] = gather_one(g, x, row, i);
    }
    return 0;
}

// look() of training_step.py, once in every training step: one call instead of a dozen operations on small tensors.
template <class T>
void look(int64_t d, int64_t probes, const T* sketch, const T* w, double faint, T* shares, double* norm) {
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < d * d; ++i) squares += double(w[i]) * w[i];
    *norm = std::sqrt(squares);
    std::vector<double> first(d), spread, next;
    for (int64_t k = 0; k < probes; ++k)
        for (int64_t j = 0; j < d; ++j) first[j] += double(sketch[k * d + j]) * sketch[k * d + j];
    for (double& share : first) share = std::sqrt(share) + faint;
    spread = first;
    const double inverse = 1 / std::max(*norm, 1e-30);
    for (int times = 0; times < 3; ++times) {
        next = first;
        for (int64_t i = 0; i < d; ++i) {
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < d; ++j) {
                const double coupled = std::abs(double(w[i * d + j])) * inverse;
                sum += coupled * spread[j];
                next[j] += coupled * spread[i];
            }
            next[i] += sum;
        }
        spread.swap(next);
    }
    std::copy(spread.begin(), spread.end(), shares);
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
#define EXPORT(T, suffix)                                                                                              \
    extern "C" int pprgnn_product_##suffix(int64_t n, int64_t d, const int32_t* crow, const int32_t* col,             \
                                           const T* value, const T* x, T* out, int threads) {                         \
        return product<T>({n, d, crow, col, value}, x, out, threads);                                                 \
    }                                                                                                                  \
    extern "C" int pprgnn_look_##suffix(int64_t d, int64_t probes, const T* sketch, const T* w, double faint,         \
                                        T* shares, double* norm, int)  {                                              \
        return attempt([=] { look<T>(d, probes, sketch, w, faint, shares, norm); });                                  \
    }                                                                                                                  \
    extern "C" int pprgnn_descend_##suffix(                                                                            \
        int64_t n, int64_t d, const int32_t* crow, const int32_t* col, const T* value, const T* b,                     \
        const int32_t* far_crow, const int32_t* far_col, const T* far_value, const T* far, int64_t begin,              \
        int64_t end, const T* w, const T* eps, double phi, int64_t first, int64_t steps, T* const* states,           \
        const int64_t* order, const T* at, int64_t warm, int threads) {                                                \
        return descend<T>({n, d, crow, col, value}, {far_crow, far_col, far_value, far, begin}, {begin, end}, b, w,    \
                          eps, T(phi), first, steps, states, order, at, warm != 0, threads);                         \
    }                                                                                                                  \
    extern "C" int pprgnn_ascend_##suffix(                                                                             \
        int64_t n, int64_t d, const int32_t* crow, const int32_t* col, const T* value, const T* w, const T* w_t,       \
        const int32_t* far_crow, const int32_t* far_col, const T* far_value, const T* far, int64_t begin,              \
        int64_t end, const T* eps, double phi, int64_t first, int64_t products, int64_t terms,                       \
        const T* const* states, T* const* z, T* b_bar, T* w_bar, T* eps_bar, int threads) {                            \
        return ascend<T>({n, d, crow, col, value}, {far_crow, far_col, far_value, far, begin}, {begin, end}, w, w_t,   \
                         eps, T(phi), first, products, terms, states, z, b_bar, w_bar, eps_bar, threads);            \
    }
EXPORT(float, f32)
EXPORT(double, f64)
