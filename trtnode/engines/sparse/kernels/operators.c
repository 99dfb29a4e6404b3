/* Custom operators of ONNX Runtime over the sparse kernels, in the domain trtnode.sparse.

   Inputs of those with sparse weights: X float; values float, steps uint8, starts int32 as in `Sparse`; bias float,
   optional; first states. */
#include <stdlib.h>

#include "convolution.h"
#include "recurrent.h"

#define DOMAIN_NAME "trtnode.sparse"

static const char *no_provider(const CustomOp *op) { return (void)op, NULL; }
static int sparse_type(const CustomOp *op, size_t index) {
    static const int types[] = {ELEMENT_FLOAT, ELEMENT_FLOAT, ELEMENT_UINT8, ELEMENT_INT32};
    return (void)op, index < 4 ? types[index] : ELEMENT_FLOAT;
}
static int sparse_need(const CustomOp *op, size_t index) {
    return (void)op, index < 4 ? INPUT_REQUIRED : INPUT_OPTIONAL;
}
static int dense_type(const CustomOp *op, size_t index) { return (void)op, (void)index, ELEMENT_FLOAT; }
static int dense_need(const CustomOp *op, size_t index) {
    return (void)op, index < 2 ? INPUT_REQUIRED : INPUT_OPTIONAL;
}
static int input_memory(const CustomOp *op, size_t index) { return (void)op, (void)index, 0; }
static int one(const CustomOp *op) { return (void)op, 1; }
static int any_version(const CustomOp *op) { return (void)op, INT32_MAX; }

/* `kind` is sparse or dense, which says what the inputs are. Outputs of recurrences are optional, as in ONNX. */
#define OPERATOR(prefix, name, kind, inputs, outputs, need, computed)                                          \
    static const char *prefix##_name(const CustomOp *op) { return (void)op, name; }                            \
    static size_t prefix##_inputs(const CustomOp *op) { return (void)op, inputs; }                             \
    static size_t prefix##_outputs(const CustomOp *op) { return (void)op, outputs; }                           \
    static int prefix##_need(const CustomOp *op, size_t index) { return (void)op, (void)index, need; }         \
    static Status *make_##prefix(const CustomOp *op, Api given, const KernelInfo *info, void **made) {         \
        return (void)op, (void)given, create_##prefix(info, made);                                             \
    }                                                                                                          \
    static const CustomOp prefix##_operator = {                                                                \
        .version = API_VERSION, .get_name = prefix##_name, .get_provider = no_provider,                        \
        .get_input_type = kind##_type, .get_input_count = prefix##_inputs, .get_output_type = dense_type,      \
        .get_output_count = prefix##_outputs, .destroy = free, .get_input_need = kind##_need,                  \
        .get_output_need = prefix##_need, .get_input_memory = input_memory, .get_least_inputs = one,           \
        .get_inputs_alike = one, .get_least_outputs = one, .get_outputs_alike = one,                           \
        .create_kernel_v2 = make_##prefix, .compute_v2 = computed, .get_first_version = one,                   \
        .get_last_version = any_version};

OPERATOR(conv, "SparseConv", sparse, 5, 1, INPUT_REQUIRED, compute_product)
OPERATOR(matmul, "SparseMatMul", sparse, 5, 1, INPUT_REQUIRED, compute_product)
OPERATOR(depthwise, "DepthwiseConv", dense, 3, 1, INPUT_REQUIRED, compute_depthwise)
OPERATOR(lstm_cell, "SparseLSTM", sparse, 7, 3, INPUT_OPTIONAL, compute_cell)
OPERATOR(gru_cell, "SparseGRU", sparse, 6, 2, INPUT_OPTIONAL, compute_cell)

static const CustomOp *const OPERATORS[] = {&conv_operator, &matmul_operator, &depthwise_operator, &lstm_cell_operator,
                                            &gru_cell_operator};

/* Tries the first and the last place of `OrtApi` that is used, by what they answer to what they must refuse. */
static int has_slots(void) {
    Status *made = CREATE_STATUS(api)(INVALID_ARGUMENT, "probe");
    int is_status = made && GET_ERROR_CODE(api)(made) == INVALID_ARGUMENT;
    if (made) RELEASE_STATUS(api)(made);
    Status *refused = is_status ? PARALLEL_FOR(api)(NULL, NULL, 0, 0, NULL) : NULL;
    if (refused) RELEASE_STATUS(api)(refused);
    return refused != NULL;
}

/* Of the operators and their tensors; library.py expects the same. */
__attribute__((visibility("default"))) const char *trtnode_sparse_version(void) { return "6"; }

/* The name of the instructions that the kernels use here. */
__attribute__((visibility("default"))) const char *trtnode_sparse_instructions(void) { return best_kernels()->name; }

/* What ONNX Runtime calls when a session registers this library. */
__attribute__((visibility("default"))) Status *RegisterCustomOps(SessionOptions *options, const ApiBase *base) {
    static OpDomain *domain;
    api = base->get_api(API_VERSION);
    if (!api) return NULL; /* older than the interface; the session then says that it lacks the operators */
    if (!has_slots()) return CREATE_STATUS(api)(FAIL, "this ONNX Runtime has another C interface than expected");
    if (!domain) {
        TRY(CREATE_DOMAIN(api)(DOMAIN_NAME, &domain));
        for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) TRY(ADD_OP(api)(domain, OPERATORS[i]));
    }
    return ADD_DOMAIN(api)(options, domain);
}
