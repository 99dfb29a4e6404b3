/* Stands for CUDA's driver where there is no GPU: pycuda runs on it as on the real one.
 *
 * Device memory is host memory that nothing else may touch. Each stream is a thread that does its work late, so that a
 * missing synchronization shows. Every resource is counted, and every address is checked when the work is given and again
 * when it is done. What is not here says "not supported". Semantics: CUDA Driver API, "Stream Management", "Event
 * Management", "Memory Management" and "Primary Context Management".
 */

#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 512, PAGE = 4096, DEEPEST = 64, POISON = 0xDB, FREED = 0xDD };
enum { DEVICE, PAGE_LOCKED, STREAM, EVENT, RETAINED, PUSHED, KINDS };

static const size_t TOTAL = (size_t)1 << 34;

/* For tests to read and to set. */
int standin_alive[KINDS];
int standin_delay_us = 200;
int standin_pageable_copies;
char standin_misuse[256];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static CUresult lost = CUDA_SUCCESS;
static __thread int depth;
static __thread CUcontext stack[DEEPEST];
static char primary;

typedef struct Block {
    struct Block *next;
    char *address;
    size_t size;
    int kind;
} Block;

typedef struct Work {
    struct Work *next;
    void (*run)(struct Work *);
    char *target;
    const char *source;
    size_t size;
    int value;
    struct CUevent_st *event;
    long number;
    CUhostFn call;
    void *argument;
} Work;

struct CUevent_st {
    long recorded, reached;
    int alive;
};

struct CUstream_st {
    struct CUstream_st *next;
    pthread_t thread;
    Work *first, **last;
    int busy, ending;
};

static Block *blocks;
static CUstream streams;
static size_t used;

/* The next two hold the lock. */

static void note(const char *misuse) {
    if (!*standin_misuse) snprintf(standin_misuse, sizeof standin_misuse, "%s", misuse);
}

static Block *block_at(const void *address, size_t size, int kind) {
    for (Block *block = blocks; block; block = block->next)
        if (block->kind == kind && (const char *)address >= block->address &&
            (const char *)address + size <= block->address + block->size)
            return block;
    return NULL;
}

static CUresult check(void) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    return lost;
}

/* Memory */

static CUresult take(void **result, size_t size, int kind, size_t alignment) {
    CUresult problem = check();
    if (problem) return problem;
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    Block *block = malloc(sizeof *block);
    void *address;
    pthread_mutex_lock(&lock);
    if ((kind == DEVICE && used + size > TOTAL) || posix_memalign(&address, alignment, size)) {
        pthread_mutex_unlock(&lock);
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(address, POISON, size);
    *block = (Block){blocks, address, size, kind};
    blocks = block;
    if (kind == DEVICE) used += size;
    standin_alive[kind]++;
    pthread_mutex_unlock(&lock);
    *result = address;
    return CUDA_SUCCESS;
}

static CUresult give_back(void *address, int kind) {
    CUresult problem = check();
    if (problem) return problem;
    pthread_mutex_lock(&lock);
    Block **link = &blocks;
    while (*link && !((*link)->kind == kind && (*link)->address == (char *)address)) link = &(*link)->next;
    Block *block = *link;
    if (block) {
        *link = block->next;
        if (kind == DEVICE) used -= block->size;
        standin_alive[kind]--;
        memset(block->address, FREED, block->size);
    }
    pthread_mutex_unlock(&lock);
    if (!block) return CUDA_ERROR_INVALID_VALUE;
    free(block->address);
    free(block);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *result, size_t size) { return take((void **)result, size, DEVICE, ALIGNMENT); }
CUresult cuMemFree(CUdeviceptr address) { return give_back((void *)address, DEVICE); }
CUresult cuMemHostAlloc(void **result, size_t size, unsigned flags) { return take(result, size, PAGE_LOCKED, PAGE); }
CUresult cuMemFreeHost(void *address) { return give_back(address, PAGE_LOCKED); }

CUresult cuMemGetInfo(size_t *left, size_t *total) {
    *left = TOTAL - used;
    *total = TOTAL;
    return check();
}

int standin_is_device_memory(CUdeviceptr address, size_t size) {
    pthread_mutex_lock(&lock);
    int found = block_at((void *)address, size, DEVICE) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

void standin_lose(int error) { lost = (CUresult)error; }

/* Streams */

static void *work_on(void *argument) {
    CUstream stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->ending) pthread_cond_wait(&changed, &lock);
        Work *work = stream->first;
        if (!work) break;
        stream->first = work->next;
        if (!stream->first) stream->last = &stream->first;
        stream->busy = 1;
        pthread_mutex_unlock(&lock);
        usleep((useconds_t)standin_delay_us);
        if (!lost) work->run(work);
        free(work);
        pthread_mutex_lock(&lock);
        stream->busy = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static CUresult add(CUstream stream, Work work) {
    CUresult problem = check();
    if (problem) return problem;
    if (!stream) return CUDA_ERROR_NOT_SUPPORTED; /* the default stream waits for all others: nobody here should use it */
    Work *kept = malloc(sizeof *kept);
    *kept = work;
    kept->next = NULL;
    pthread_mutex_lock(&lock);
    *stream->last = kept;
    stream->last = &kept->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void finish(CUstream stream) {
    pthread_mutex_lock(&lock);
    while (stream->first || stream->busy) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

CUresult cuStreamCreate(CUstream *result, unsigned flags) {
    CUresult problem = check();
    if (problem) return problem;
    if (!(flags & CU_STREAM_NON_BLOCKING)) note("a stream waits for the default stream");
    CUstream stream = calloc(1, sizeof *stream);
    stream->last = &stream->first;
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    pthread_create(&stream->thread, NULL, work_on, stream);
    __atomic_add_fetch(&standin_alive[STREAM], 1, __ATOMIC_SEQ_CST);
    *result = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
    pthread_mutex_lock(&lock);
    if (stream->first || stream->busy) note("a stream was destroyed before its work was done");
    stream->ending = 1;
    CUstream *link = &streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    __atomic_sub_fetch(&standin_alive[STREAM], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    CUresult problem = check();
    if (problem) return problem;
    if (!stream) return CUDA_ERROR_NOT_SUPPORTED;
    finish(stream);
    return lost;
}

CUresult cuStreamQuery(CUstream stream) {
    CUresult problem = check();
    if (problem) return problem;
    pthread_mutex_lock(&lock);
    int working = stream->first || stream->busy;
    pthread_mutex_unlock(&lock);
    return working ? CUDA_ERROR_NOT_READY : lost;
}

/* Work: each runs in the thread of a stream, without the lock. */

static void copy(Work *work) {
    pthread_mutex_lock(&lock);
    int to = block_at(work->target, work->size, DEVICE) != NULL, from = block_at(work->source, work->size, DEVICE) != NULL;
    if (!to && !from) lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    else memmove(work->target, work->source, work->size);
    pthread_mutex_unlock(&lock);
}

static void fill(Work *work) {
    pthread_mutex_lock(&lock);
    if (!block_at(work->target, work->size, DEVICE)) lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    else memset(work->target, work->value, work->size);
    pthread_mutex_unlock(&lock);
}

static void call(Work *work) { work->call(work->argument); }

static void reach(Work *work) {
    pthread_mutex_lock(&lock);
    work->event->reached = work->number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await_event(Work *work) {
    pthread_mutex_lock(&lock);
    while (work->event->reached < work->number) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Copies. Like the real driver's, those with pageable memory are done before the call returns. */

static CUresult copy_on(CUstream stream, void *target, const void *source, size_t size, const void *host) {
    CUresult problem = check();
    if (problem) return problem;
    pthread_mutex_lock(&lock);
    int to = block_at(target, size, DEVICE) != NULL, from = block_at(source, size, DEVICE) != NULL;
    int pageable = host && !block_at(host, size, PAGE_LOCKED);
    standin_pageable_copies += pageable;
    pthread_mutex_unlock(&lock);
    if (host ? to == from : !(to && from)) return CUDA_ERROR_INVALID_VALUE;
    problem = add(stream, (Work){.run = copy, .target = target, .source = source, .size = size});
    if (!problem && pageable) finish(stream);
    return problem;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t size, CUstream stream) {
    return copy_on(stream, (void *)target, source, size, source);
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t size, CUstream stream) {
    return copy_on(stream, target, (void *)source, size, target);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
    return copy_on(stream, (void *)target, (void *)source, size, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t size, CUstream stream) {
    return add(stream, (Work){.run = fill, .target = (char *)target, .value = value, .size = size});
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
    return add(stream, (Work){.run = call, .call = function, .argument = argument});
}

/* Events. They are kept when they are destroyed, so that work which still waits for one finds it. */

CUresult cuEventCreate(CUevent *result, unsigned flags) {
    CUresult problem = check();
    if (problem) return problem;
    *result = calloc(1, sizeof **result);
    (*result)->alive = 1;
    __atomic_add_fetch(&standin_alive[EVENT], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    if (!event->alive) return CUDA_ERROR_INVALID_HANDLE;
    event->alive = 0;
    __atomic_sub_fetch(&standin_alive[EVENT], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    if (!event->alive) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    long number = ++event->recorded;
    pthread_mutex_unlock(&lock);
    return add(stream, (Work){.run = reach, .event = event, .number = number});
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    if (!event->alive) return CUDA_ERROR_INVALID_HANDLE;
    return add(stream, (Work){.run = await_event, .event = event, .number = event->recorded});
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult problem = check();
    if (problem) return problem;
    pthread_mutex_lock(&lock);
    while (event->reached < event->recorded && !lost) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return lost;
}

CUresult cuEventQuery(CUevent event) {
    CUresult problem = check();
    if (problem) return problem;
    return event->reached < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* The device and its primary context */

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { return *bytes = TOTAL, CUDA_SUCCESS; }

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = 0;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "simulated GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = (CUcontext)&primary;
    __atomic_add_fetch(&standin_alive[RETAINED], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    __atomic_sub_fetch(&standin_alive[RETAINED], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    if (depth == DEEPEST) return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    __atomic_add_fetch(&standin_alive[PUSHED], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = stack[--depth];
    if (context) *context = top;
    __atomic_sub_fetch(&standin_alive[PUSHED], 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return check();
}

CUresult cuCtxSynchronize(void) {
    CUresult problem = check();
    if (problem) return problem;
    pthread_mutex_lock(&lock);
    for (CUstream stream = streams; stream; stream = stream->next)
        while (stream->first || stream->busy) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return lost;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    static __thread char line[64];
    snprintf(line, sizeof line, "error %d of the simulated driver", (int)error);
    *text = line;
    return CUDA_SUCCESS;
}
