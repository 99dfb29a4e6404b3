/* The part of ONNX Runtime's C interface that the kernels use.

   Its packages hold no headers. `OrtApi` is a table of function pointers that only ever grows at its end, so a function
   is named here by its place in that table. `has_slots` tries the places out before any of them is relied on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define API_VERSION 17 /* the first one with KernelContext_ParallelFor */

typedef struct Status Status;
typedef struct Value Value;
typedef struct ShapeInfo ShapeInfo;
typedef struct KernelInfo KernelInfo;
typedef struct KernelContext KernelContext;
typedef struct SessionOptions SessionOptions;
typedef struct OpDomain OpDomain;
typedef struct CustomOp CustomOp;
typedef const void *const *Api;

typedef struct {
    Api (*get_api)(uint32_t version);
    const char *(*get_version)(void);
} ApiBase;

enum { FAIL = 1, INVALID_ARGUMENT = 2 };
enum { ELEMENT_FLOAT = 1, ELEMENT_UINT8 = 2, ELEMENT_INT32 = 6 };
enum { INPUT_REQUIRED = 0, INPUT_OPTIONAL = 1 };

#define CREATE_STATUS(api) ((Status * (*)(int, const char *))(api)[0])
#define GET_ERROR_CODE(api) ((int (*)(const Status *))(api)[1])
#define CREATE_DOMAIN(api) ((Status * (*)(const char *, OpDomain **))(api)[26])
#define ADD_OP(api) ((Status * (*)(OpDomain *, const CustomOp *))(api)[27])
#define ADD_DOMAIN(api) ((Status * (*)(SessionOptions *, OpDomain *))(api)[28])
#define GET_DATA(api) ((Status * (*)(Value *, void **))(api)[51])
#define GET_RANK(api) ((Status * (*)(const ShapeInfo *, size_t *))(api)[61])
#define GET_SIZES(api) ((Status * (*)(const ShapeInfo *, int64_t *, size_t))(api)[62])
#define GET_SHAPE_INFO(api) ((Status * (*)(const Value *, ShapeInfo **))(api)[65])
#define GET_FLOAT(api) ((Status * (*)(const KernelInfo *, const char *, float *))(api)[85])
#define GET_INT(api) ((Status * (*)(const KernelInfo *, const char *, int64_t *))(api)[86])
#define GET_INPUT(api) ((Status * (*)(const KernelContext *, size_t, const Value **))(api)[90])
#define GET_OUTPUT(api) ((Status * (*)(KernelContext *, size_t, const int64_t *, size_t, Value **))(api)[91])
#define RELEASE_STATUS(api) ((void (*)(Status *))(api)[93])
#define RELEASE_SHAPE_INFO(api) ((void (*)(ShapeInfo *))(api)[99])
#define GET_CONSTANT(api) ((Status * (*)(const KernelInfo *, size_t, int *, const Value **))(api)[249])
#define PARALLEL_FOR(api) \
    ((Status * (*)(const KernelContext *, void (*)(void *, size_t), size_t, size_t, void *))(api)[274])

struct CustomOp {
    uint32_t version;
    void *(*create_kernel)(const CustomOp *, Api, const KernelInfo *);
    const char *(*get_name)(const CustomOp *);
    const char *(*get_provider)(const CustomOp *);
    int (*get_input_type)(const CustomOp *, size_t);
    size_t (*get_input_count)(const CustomOp *);
    int (*get_output_type)(const CustomOp *, size_t);
    size_t (*get_output_count)(const CustomOp *);
    void (*compute)(void *, KernelContext *);
    void (*destroy)(void *);
    int (*get_input_need)(const CustomOp *, size_t);
    int (*get_output_need)(const CustomOp *, size_t);
    int (*get_input_memory)(const CustomOp *, size_t);
    int (*get_least_inputs)(const CustomOp *);
    int (*get_inputs_alike)(const CustomOp *);
    int (*get_least_outputs)(const CustomOp *);
    int (*get_outputs_alike)(const CustomOp *);
    Status *(*create_kernel_v2)(const CustomOp *, Api, const KernelInfo *, void **);
    Status *(*compute_v2)(void *, KernelContext *);
    Status *(*infer_shapes)(const CustomOp *, void *);
    int (*get_first_version)(const CustomOp *);
    int (*get_last_version)(const CustomOp *);
    size_t (*get_in_place)(int **, int **);
    void (*release_in_place)(int *, int *);
    size_t (*get_aliases)(int **, int **);
    void (*release_aliases)(int *, int *);
};
