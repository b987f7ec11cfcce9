/* The functions of the CUDA driver that are used, declared without its headers: they are opened at run time. And copies by several threads, made of
   them. */
#pragma once
#include "runtime/runtime.h"

typedef int       CudaResult;
typedef uintptr_t DevicePointer;

enum {
  CUDA_OUT_OF_MEMORY             = 2,
  CUDA_EVENT_DISABLE_TIMING      = 2,
  CUDA_CAPTURE_RELAXED           = 2,
  CUDA_STREAM_NON_BLOCKING       = 1, /* beside the stream that others wait for */
  CUDA_MEM_ATTACH_GLOBAL         = 1,
  CUDA_ADVISE_PREFERRED_LOCATION = 3,
  CUDA_LOCATION_DEVICE           = 1,
  CUDA_CONCURRENT_MANAGED_ACCESS = 89,
  CUDA_POINTER_MEMORY_TYPE       = 2,
  CUDA_MEMORY_DEVICE             = 2,
  CUDA_CLOCK_RATE                = 13,
  CUDA_IPC_LAZY_PEER_ACCESS      = 1,
  CUDA_NOT_READY                 = 600,
  CUDA_NODE_CONDITIONAL          = 13,
  CUDA_CONDITION_WHILE           = 1,
  CUDA_CONDITION_DEFAULT         = 1 /* a condition has its default value when a graph is launched */
};

/* CUipcMemHandle, which goes by value */
typedef struct {
  char bytes[GPUFMT_HANDLE_BYTES];
} CudaIpcHandle;

/* CUDA_KERNEL_NODE_PARAMS, of CUDA 12 and later */
typedef struct {
  void    *function;
  unsigned grid[3], block[3], shared_bytes;
  void   **params, **extra;
  void    *kernel, *context;
} CudaKernelNode;

/* CUgraphNodeParams of a conditional node */
typedef struct {
  int type, reserved[3];
  union {
    struct {
      uint64_t handle;
      int      kind;
      unsigned nbodies;
      void   **bodies; /* graphs that the driver has made */
      void    *context;
    } loop;
    int64_t words[29];
  };
  int64_t reserved_word;
} CudaGraphNode;
_Static_assert(sizeof(CudaGraphNode) == 256, "the driver writes so much");

/* CUmemLocation */
typedef struct {
  int type, id;
} CudaLocation;

typedef struct {
  PetscBool tried, loaded;
  CudaResult (*Init)(unsigned);
  CudaResult (*DeviceGetCount)(int *);
  CudaResult (*DeviceGet)(int *, int ordinal);
  CudaResult (*DevicePrimaryCtxRetain)(void **, int device);
  CudaResult (*CtxGetDevice)(int *);
  CudaResult (*CtxGetCurrent)(void **);
  CudaResult (*CtxSetCurrent)(void *);
  CudaResult (*CtxSynchronize)(void);
  CudaResult (*ThreadExchangeStreamCaptureMode)(int *);
  CudaResult (*GetErrorString)(CudaResult, const char **);
  CudaResult (*ModuleLoadData)(void **, const void *image);
  CudaResult (*ModuleGetFunction)(void **, void *module, const char *);
  CudaResult (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  CudaResult (*MemAlloc)(DevicePointer *, size_t);
  CudaResult (*MemFree)(DevicePointer);
  CudaResult (*MemGetInfo)(size_t *, size_t *);
  CudaResult (*MemAllocHost)(void **, size_t);
  CudaResult (*MemFreeHost)(void *);
  CudaResult (*MemsetD8Async)(DevicePointer, unsigned char, size_t, void *);
  CudaResult (*MemcpyHtoDAsync)(DevicePointer, const void *, size_t, void *);
  CudaResult (*MemcpyDtoHAsync)(void *, DevicePointer, size_t, void *);
  CudaResult (*CtxGetStreamPriorityRange)(int *least, int *greatest);
  CudaResult (*StreamCreateWithPriority)(void **, unsigned flags, int priority);
  CudaResult (*StreamDestroy)(void *);
  CudaResult (*StreamSynchronize)(void *);
  CudaResult (*StreamWaitEvent)(void *, void *, unsigned);
  CudaResult (*EventCreate)(void **, unsigned);
  CudaResult (*EventRecord)(void *, void *);
  CudaResult (*EventQuery)(void *);
  CudaResult (*EventSynchronize)(void *);
  CudaResult (*EventDestroy)(void *);
  CudaResult (*DeviceGetAttribute)(int *, int attribute, int device);
  CudaResult (*MemAllocManaged)(DevicePointer *, size_t, unsigned);
  CudaResult (*MemAdvise)(DevicePointer, size_t, int advice, int device);    /* as before CUDA 13, whose headers rename it */
  CudaResult (*MemPrefetchAsync)(DevicePointer, size_t, int device, void *); /* likewise */
  CudaResult (*MemDiscardAndPrefetchBatchAsync)(DevicePointer[], size_t[], size_t count, CudaLocation[], size_t firsts[], size_t nlocations,
                                                unsigned long long flags, void *); /* NULL before CUDA 13 */
  CudaResult (*MemcpyDtoDAsync)(DevicePointer, DevicePointer, size_t, void *);
  CudaResult (*PointerGetAttributes)(unsigned, int attributes[], void *answers[], DevicePointer);
  CudaResult (*DeviceGetUuid)(char uuid[GPUFMT_IDENTITY_BYTES], int device);
  CudaResult (*IpcGetMemHandle)(CudaIpcHandle *, DevicePointer);
  CudaResult (*IpcOpenMemHandle)(DevicePointer *, CudaIpcHandle, unsigned flags);
  CudaResult (*IpcCloseMemHandle)(DevicePointer);
  CudaResult (*GraphCreate)(void **, unsigned flags);
  CudaResult (*GraphAddKernelNode)(void **node, void *graph, void *const before[], size_t nbefore, const CudaKernelNode *);
  CudaResult (*GraphInstantiate)(void **, void *graph, unsigned long long flags);
  CudaResult (*GraphUpload)(void *, void *stream);
  CudaResult (*GraphLaunch)(void *, void *stream);
  CudaResult (*GraphDestroy)(void *graph);
  CudaResult (*GraphExecDestroy)(void *);
  CudaResult (*GraphConditionalHandleCreate)(uint64_t *, void *graph, void *context, unsigned value, unsigned flags); /* NULL before CUDA 12.3 */
  CudaResult (*GraphAddNode)(void **node, void *graph, void *const before[], const void *edges, size_t nbefore, CudaGraphNode *); /* likewise */
} GpufmtDriver;

GPUFMT_HIDDEN extern GpufmtDriver gpufmt_driver;
GPUFMT_HIDDEN const char         *GpufmtDriverMessage(CudaResult);
GPUFMT_HIDDEN bool                GpufmtDriverKnows(const void *host);

/* staging.c */
GPUFMT_HIDDEN void       GpufmtStagingMake(void);
GPUFMT_HIDDEN bool       GpufmtStagingWanted(size_t bytes);
GPUFMT_HIDDEN bool       GpufmtStagingServesUpload(size_t bytes);
GPUFMT_HIDDEN bool       GpufmtStagingServesDownload(size_t bytes);
GPUFMT_HIDDEN CudaResult GpufmtStagingUpload(DevicePointer, const void *host, size_t bytes, void *stream);
GPUFMT_HIDDEN CudaResult GpufmtStagingDownload(void *host, DevicePointer, size_t bytes, void *stream);
GPUFMT_HIDDEN CudaResult GpufmtStagingSettle(void);
GPUFMT_HIDDEN CudaResult GpufmtStagingLend(void);
GPUFMT_HIDDEN void       GpufmtStagingTakeBack(void);
GPUFMT_HIDDEN CudaResult GpufmtStagingEnd(void);

/* loop.c */
typedef struct {
  uint64_t            handle;
  void               *body;
  const GpufmtLaunch *condition; /* the last launch of the body, once ALPHA is the handle, and X the word that ends it */
} GpufmtLoop;
GPUFMT_HIDDEN PetscErrorCode GpufmtLoopAdd(void *graph, GpufmtLoop *, const char **why_not);

#define CallDriver(what, call) \
  do { \
    CudaResult code_ = (call); \
    PetscCheck(!code_, PETSC_COMM_SELF, PETSC_ERR_GPU, "CUDA error %d in %s: %s", code_, what, GpufmtDriverMessage(code_)); \
  } while (0)
