#include "recurrent.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "panel.h"

typedef struct {
    size_t gates; /* 4 of an LSTM, 3 of a GRU */
    Sparse matrix;
    size_t hidden, directions;
    int64_t is_reverse, is_linear; /* is_linear: a GRU resets its product with the state, not the state */
    const Kernels *kernels;
} Cell;

/* Units that pieces of work are a multiple of. */
static size_t unit_step(const Cell *cell) { return cell->matrix.is_patched ? 4 * PATCH_ROWS : cell->matrix.block; }

static Status *create(size_t gates, const KernelInfo *info, void **made) {
    Cell cell = {.gates = gates, .kernels = best_kernels()};
    TRY(read_matrix(info, &cell.matrix));
    TRY(get_int(info, "reverse", &cell.is_reverse));
    TRY(get_int(info, "linear_before_reset", &cell.is_linear));
    cell.hidden = cell.matrix.columns, cell.directions = cell.matrix.rows / (gates * cell.hidden);
    if (cell.directions < 1 || cell.directions > 2 || cell.matrix.rows != cell.directions * gates * cell.hidden ||
        cell.hidden % unit_step(&cell))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the weights of a recurrence don't fit its gates");
    if (!(*made = malloc(sizeof cell))) return CREATE_STATUS(api)(FAIL, "out of memory");
    memcpy(*made, &cell, sizeof cell);
    return NULL;
}

Status *create_lstm_cell(const KernelInfo *info, void **made) { return create(4, info, made); }
Status *create_gru_cell(const KernelInfo *info, void **made) { return create(3, info, made); }

/* All steps of one run. A step is one turn; a GRU that resets the state before its product takes two. Threads share the
   items of a turn, and go to the next turn when all of them are done. Whoever finds no other thread computes them all, so
   no thread waits for one that doesn't run. */
typedef struct {
    const Cell *cell;
    const float *inputs, *first_state;
    float *states, *cells, *sums, *reset; /* states: [steps, directions, batch, hidden] */
    size_t steps, batch, turns_per_step, groups, items;
    atomic_int out_of_memory;
    struct {
        _Alignas(64) atomic_size_t turns; /* for which an item is taken; mostly by one thread, so each has a cache line */
    } claimed[MAX_ITEMS];
    _Alignas(64) atomic_size_t done; /* items in all; what all threads write has no line in common with what they read */
} Run;

/* Where a piece of work is: some units of one direction at one step. */
typedef struct {
    size_t direction, time, first, last; /* units */
    const float *before;                 /* the state of the step before, [batch, hidden] */
    float *state;
} Place;

static Place place_of(const Run *run, size_t step, size_t item) {
    const Cell *cell = run->cell;
    const size_t step_units = unit_step(cell), pieces = cell->hidden / step_units;
    const size_t group = item % run->groups, direction = item / run->groups;
    const size_t one = run->batch * cell->hidden, all = cell->directions * one;
    const int backward = cell->is_reverse || direction == 1;
    const size_t time = backward ? run->steps - 1 - step : step, earlier = backward ? time + 1 : time - 1;
    const float *before = (step ? run->states + earlier * all : run->first_state) + direction * one;
    return (Place){.direction = direction, .time = time, .before = before,
                   .state = run->states + time * all + direction * one,
                   .first = pieces * group / run->groups * step_units,
                   .last = pieces * (group + 1) / run->groups * step_units};
}

/* Rows from one gate of a unit to the next. */
static size_t gate_step(const Cell *cell) { return cell->matrix.is_patched ? unit_step(cell) : cell->hidden; }

/* The row of the matrix, and of the sums, for one gate of a unit. All gates of a patch's units lie side by side: an item
   reads its weights in one run. */
static size_t row_of(const Cell *cell, size_t direction, size_t gate, size_t unit) {
    const size_t before = cell->matrix.is_patched ? cell->gates * unit : unit;
    return direction * cell->gates * cell->hidden + before + gate * gate_step(cell);
}

/* Sums of gates `gate` to `gate_end` over a single column. */
static void multiply_column(const Cell *cell, const Place *place, const float *state, float *sums, size_t gate,
                            size_t gate_end) {
    const size_t step = unit_step(cell), units = (place->last - place->first) / step;
    if (cell->matrix.is_patched)
        for (size_t unit = place->first; unit < place->last; unit += step) {
            const size_t first = row_of(cell, place->direction, gate, unit) / step;
            cell->kernels->multiply_patches(&cell->matrix, state, sums, first, first + gate_end - gate);
        }
    else
        for (; gate < gate_end; gate++) {
            const size_t first = row_of(cell, place->direction, gate, place->first) / step;
            cell->kernels->multiply_row(&cell->matrix, state, sums, first, first + units);
        }
}

static void multiply_batch(Run *run, const Place *place, const float *state, size_t gate, size_t gate_end) {
    const Cell *cell = run->cell;
    const Kernels *kernels = cell->kernels;
    const size_t rows = cell->matrix.rows, widest = kernels->lanes * kernels->vectors;
    Source source = {.x = state, .columns = cell->hidden, .outputs = run->batch, .is_rows = 1};
    for (size_t begin = 0; begin < run->batch; begin += widest) {
        Tile tile = {.used = run->batch - begin < widest ? run->batch - begin : widest, .row_step = 1, .column_step = rows};
        tile.width = (tile.used + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
        float *panel = thread_memory(cell->hidden * tile.width);
        if (!panel) {
            atomic_store(&run->out_of_memory, 1);
            return;
        }
        fill_panel(kernels, &source, panel, tile.width, begin, tile.used);
        tile.panel = panel, tile.step = tile.width;
        for (size_t g = gate; g < gate_end; g++) {
            const size_t row = row_of(cell, place->direction, g, place->first), block = cell->matrix.block;
            tile.first = row / block, tile.last = (row + place->last - place->first) / block;
            tile.out = run->sums + begin * rows + row;
            kernels->multiply(&cell->matrix, &tile);
        }
    }
}

/* Sums of gates `gate` to `gate_end`: the state weights times `state`. */
static void multiply_gates(Run *run, const Place *place, const float *state, size_t gate, size_t gate_end) {
    const Cell *cell = run->cell;
    const Sparse *matrix = &cell->matrix;
    if (run->batch > 1 && !matrix->is_patched)
        multiply_batch(run, place, state, gate, gate_end);
    else
        for (size_t b = 0; b < run->batch; b++)
            multiply_column(cell, place, state + b * matrix->columns, run->sums + b * matrix->rows, gate, gate_end);
}

static void apply(const Run *run, const Place *place, void (*gates)(const Units *), float *out) {
    const Cell *cell = run->cell;
    const size_t hidden = cell->hidden, rows = cell->matrix.rows, inputs = place->direction * cell->gates * hidden;
    for (size_t b = 0; b < run->batch; b++) {
        Units units = {.hidden = hidden, .sums_step = gate_step(cell), .before = place->before + b * hidden,
                       .inputs = run->inputs + (place->time * run->batch + b) * rows + inputs,
                       .cell = run->cells + (place->direction * run->batch + b) * hidden, .out = out + b * hidden};
        for (units.first = place->first; units.first < place->last; units.first = units.last) {
            const size_t last = units.first + units.sums_step; /* further units' sums lie behind the next gate's */
            units.last = last < place->last ? last : place->last;
            units.sums = run->sums + b * rows + row_of(cell, place->direction, 0, units.first);
            gates(&units);
        }
    }
}

static void compute_item(Run *run, size_t turn, size_t item) {
    const Cell *cell = run->cell;
    const Kernels *kernels = cell->kernels;
    const Place place = place_of(run, turn / run->turns_per_step, item);
    float *reset = run->reset + place.direction * run->batch * cell->hidden;
    if (run->turns_per_step == 1) {
        multiply_gates(run, &place, place.before, 0, cell->gates);
        apply(run, &place, cell->gates == 4 ? kernels->lstm : kernels->gru_linear, place.state);
    } else if (turn % 2 == 0) {
        multiply_gates(run, &place, place.before, 0, 2);
        apply(run, &place, kernels->gru_reset, reset);
    } else {
        multiply_gates(run, &place, reset, 2, 3);
        apply(run, &place, kernels->gru, place.state);
    }
}

static void wait_for(Run *run, size_t count) {
    for (size_t tries = 0; atomic_load_explicit(&run->done, memory_order_acquire) < count; tries++)
        if (tries % 1024 == 1023) sched_yield();
}

static int claim(Run *run, size_t turn, size_t item) {
    atomic_size_t *turns = &run->claimed[item].turns;
    size_t expected = turn;
    return atomic_load_explicit(turns, memory_order_relaxed) == turn &&
           atomic_compare_exchange_strong(turns, &expected, turn + 1);
}

/* A thread goes back over its items of the turn before, from the last to the first, and then looks for others: so it
   finds weights in its cache, as many as that holds, where the same order every turn would find none. */
static void take_part(void *data, size_t part) {
    Run *run = data;
    const size_t turns = run->steps * run->turns_per_step;
    size_t order[MAX_ITEMS], taken[MAX_ITEMS];
    for (size_t i = 0; i < run->items; i++) order[i] = (part + i) % run->items;
    for (size_t turn = atomic_load(&run->done) / run->items; turn < turns; turn++) {
        size_t mine = 0, others = run->items;
        for (size_t i = 0; i < run->items; i++) {
            if (!claim(run, turn, order[i])) {
                taken[--others] = order[i];
                continue;
            }
            compute_item(run, turn, order[i]);
            taken[mine++] = order[i];
        }
        atomic_fetch_add_explicit(&run->done, mine, memory_order_release);
        for (size_t i = 0; i < mine; i++) order[i] = taken[mine - 1 - i];
        for (size_t i = mine; i < run->items; i++) order[i] = taken[run->items - 1 - (i - mine)];
        wait_for(run, (turn + 1) * run->items);
    }
}

static void copy_last_states(const Run *run, float *last) {
    const size_t one = run->batch * run->cell->hidden;
    for (size_t direction = 0; direction < run->cell->directions; direction++) {
        const int backward = run->cell->is_reverse || direction == 1;
        const float *from = run->first_state + direction * one;
        if (run->steps)
            from = run->states + ((backward ? 0 : run->steps - 1) * run->cell->directions + direction) * one;
        memcpy(last + direction * one, from, one * sizeof *last);
    }
}

static Status *check(const Cell *cell, const Tensor *inputs, const Tensor *state, const Tensor *first_cell) {
    if (inputs->rank != 3 || (size_t)inputs->sizes[2] != cell->matrix.rows)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "a recurrence's input has another shape than its weights are for");
    const size_t count = cell->directions * inputs->sizes[1] * cell->hidden;
    if ((state->data && state->count != count) || (first_cell->data && first_cell->count != count))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "a recurrence's first state has another shape than its input");
    return NULL;
}

static Status *run_all(KernelContext *context, Run *run, float *const outputs[3]) {
    const size_t pieces = run->cell->hidden / unit_step(run->cell), most = MAX_ITEMS / run->cell->directions;
    run->turns_per_step = run->cell->gates == 3 && !run->cell->is_linear ? 2 : 1;
    run->groups = pieces < most ? pieces : most;
    run->items = run->groups * run->cell->directions;
    if (run->steps && run->batch) TRY(PARALLEL_FOR(api)(context, take_part, run->items, 0, run));
    if (atomic_load(&run->out_of_memory)) return CREATE_STATUS(api)(FAIL, "out of memory for a panel");
    const size_t count = run->cell->directions * run->batch * run->cell->hidden;
    if (outputs[1]) copy_last_states(run, outputs[1]);
    if (outputs[2]) memcpy(outputs[2], run->cells, count * sizeof *outputs[2]);
    return NULL;
}

Status *compute_cell(void *made, KernelContext *context) {
    const Cell *cell = made;
    Tensor inputs, state, first_cell = {0};
    TRY(read_input(context, 0, &inputs));
    TRY(read_input(context, 5, &state));
    if (cell->gates == 4) TRY(read_input(context, 6, &first_cell));
    TRY(check(cell, &inputs, &state, &first_cell));
    Run run = {.cell = cell, .inputs = inputs.data, .steps = inputs.sizes[0], .batch = inputs.sizes[1]};
    const int64_t sizes[] = {inputs.sizes[0], cell->directions, inputs.sizes[1], cell->hidden};
    float *outputs[3] = {NULL};
    TRY(make_output(context, 0, sizes, 4, &outputs[0]));
    for (size_t i = 1; i < cell->gates - 1; i++) TRY(make_output(context, i, sizes + 1, 3, &outputs[i]));
    const size_t one = cell->directions * run.batch * cell->hidden, sums = run.batch * cell->matrix.rows;
    float *memory = calloc(3 * one + sums + (outputs[0] ? 0 : run.steps * one) + 1, sizeof *memory);
    if (!memory) return CREATE_STATUS(api)(FAIL, "out of memory for a recurrence");
    run.first_state = state.data ? state.data : memory;
    run.cells = memory + one, run.reset = run.cells + one, run.sums = run.reset + one;
    run.states = outputs[0] ? outputs[0] : run.sums + sums;
    if (first_cell.data) memcpy(run.cells, first_cell.data, one * sizeof *memory);
    Status *failed = run_all(context, &run, outputs);
    free(memory);
    return failed;
}
