// A CUDA runtime without a device, for PyTorch's caching allocator. It is preloaded. Device memory is a counter, kernels
// do nothing, and every stream is done immediately unless `sim_set_events_ready` changes it. All other functions come
// from the real runtime library and fail as they do without a GPU.
//
// The additional functions `sim_*` are for run_workload.py of the reference data.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t GRANULARITY = 2u << 20;

struct Piece {
    size_t size;
    int device;
};

std::recursive_mutex mutex;
int devices = 1;
size_t total = size_t(24) << 30;
bool events_ready = true;
size_t used[64];
// Addresses are never reused.
uint64_t next_address = 0x100000000000;
uintptr_t next_stream = 0x1000;
CUmemGenericAllocationHandle next_handle = 1;
unsigned long long next_capture = 1;
std::map<uint64_t, Piece> segments;
std::map<CUmemGenericAllocationHandle, Piece> pages;
std::vector<std::pair<uint64_t, uint64_t>> ranges;
// The captures that streams belong to.
std::map<cudaStream_t, unsigned long long> captures;
CUresult (*create_driver_stream)(CUstream *, unsigned, int) = nullptr;
thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

using Guard = std::lock_guard<std::recursive_mutex>;

cudaError_t error(cudaError_t code) { return last = code; }

size_t rounded(size_t size) { return (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY; }

bool reserve_bytes(int device, size_t size) {
    if (size > total || used[device] + size > total) return false;
    used[device] += size;
    return true;
}

uint64_t addresses(size_t size) {
    uint64_t address = next_address;
    next_address += size + GRANULARITY;
    return address;
}

}  // namespace

// Settings for tests.

API void sim_configure(int count, size_t bytes) {
    devices = count;
    total = bytes;
}

API void sim_set_events_ready(int ready) { events_ready = ready; }

API int sim_range_count(void) { return int(ranges.size()); }

API void sim_range(int index, uint64_t *base, uint64_t *size) {
    *base = ranges[index].first;
    *size = ranges[index].second;
}

// Adds a stream to a capture.
API void sim_join_capture(cudaStream_t stream, unsigned long long capture) {
    Guard guard(mutex);
    captures[stream] = capture;
}

// Creates new streams in the loaded driver, because a pluggable allocator queries that driver about them. Returns 0 on success.
API int sim_use_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto init = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    auto retain = (CUresult(*)(CUcontext *, CUdevice))dlsym(driver, "cuDevicePrimaryCtxRetain");
    auto set = (CUresult(*)(CUcontext))dlsym(driver, "cuCtxSetCurrent");
    CUcontext context;
    if (!init || !retain || !set || init(0) || retain(&context, 0) || set(context)) return 1;
    create_driver_stream = (CUresult(*)(CUstream *, unsigned, int))dlsym(driver, "cuStreamCreateWithPriority");
    return create_driver_stream ? 0 : 1;
}

// Devices.

API cudaError_t cudaGetDeviceCount(int *count) { return *count = devices, cudaSuccess; }
API cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }
API cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices) return error(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int *version) { return *version = 13020, cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13020, cudaSuccess; }
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "Simulated");
    properties->uuid.bytes[0] = char(device);
    properties->totalGlobalMem = total;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int) {
    *value = which == cudaDevAttrComputeCapabilityMajor ? 9 : 1;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
API cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
API cudaError_t cudaGetLastError() {
    cudaError_t code = last;
    last = cudaSuccess;
    return code;
}
API cudaError_t cudaPeekAtLastError() { return last; }

// Memory.

API cudaError_t cudaMalloc(void **address, size_t size) {
    Guard guard(mutex);
    size_t reserved = rounded(size);
    if (reserved < size || !reserve_bytes(current, reserved)) return error(cudaErrorMemoryAllocation);
    uint64_t at = addresses(reserved);
    segments[at] = {reserved, current};
    *address = (void *)at;
    return cudaSuccess;
}
API cudaError_t cudaFree(void *address) {
    Guard guard(mutex);
    if (!address) return cudaSuccess;
    auto segment = segments.find(uint64_t(address));
    if (segment == segments.end()) {
        fprintf(stderr, "cudaFree of an unknown segment: %p\n", address);
        return error(cudaErrorInvalidValue);
    }
    used[segment->second.device] -= segment->second.size;
    segments.erase(segment);
    return cudaSuccess;
}
API cudaError_t cudaMemGetInfo(size_t *free, size_t *all) {
    *all = total;
    *free = total - used[current];
    return cudaSuccess;
}
API cudaError_t cudaHostAlloc(void **address, size_t size, unsigned) { return *address = malloc(size), cudaSuccess; }
API cudaError_t cudaFreeHost(void *address) { return free(address), cudaSuccess; }
API cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) { return cudaSuccess; }

// Events.

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = (cudaEvent_t)malloc(1);
    return cudaSuccess;
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
API cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaEventQuery(cudaEvent_t) { return events_ready ? cudaSuccess : error(cudaErrorNotReady); }
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

// Streams and captures.

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    Guard guard(mutex);
    if (create_driver_stream) {
        return create_driver_stream((CUstream *)stream, flags, 0) ? error(cudaErrorUnknown) : cudaSuccess;
    }
    *stream = (cudaStream_t)next_stream;
    next_stream += 0x100;
    return cudaSuccess;
}
API cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    Guard guard(mutex);
    captures[stream] = next_capture++;
    return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    Guard guard(mutex);
    auto capture = captures[stream];
    for (auto at = captures.begin(); at != captures.end();) {
        at = at->second == capture ? captures.erase(at) : std::next(at);
    }
    *graph = (cudaGraph_t)malloc(1);
    return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    Guard guard(mutex);
    *status = captures.count(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id,
                                         cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                         const cudaGraphEdgeData **edges, size_t *count) {
    cudaStreamIsCapturing(stream, status);
    if (id) *id = *status == cudaStreamCaptureStatusActive ? captures[stream] : 0;
    if (graph) *graph = nullptr;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return free(graph), cudaSuccess; }
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return free(graph), cudaSuccess; }
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graph, cudaGraph_t, unsigned long long) {
    *graph = (cudaGraphExec_t)malloc(1);
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *graph, cudaGraph_t of, unsigned long long flags) {
    return cudaGraphInstantiate(graph, of, flags);
}
API cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *count) { return *count = 0, cudaSuccess; }

// The driver's functions for expandable segments.

namespace {

CUresult granularity(size_t *size, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    *size = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr *address, size_t size, size_t, CUdeviceptr, unsigned long long) {
    Guard guard(mutex);
    *address = addresses(rounded(size));
    ranges.push_back({*address, rounded(size)});
    return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                unsigned long long) {
    Guard guard(mutex);
    Piece page = {rounded(size), properties->location.id};
    if (!reserve_bytes(page.device, page.size)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = next_handle++;
    pages[*handle] = page;
    return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
    Guard guard(mutex);
    auto page = pages.find(handle);
    if (page == pages.end()) return CUDA_ERROR_INVALID_VALUE;
    used[page->second.device] -= page->second.size;
    pages.erase(page);
    return CUDA_SUCCESS;
}

// Returns 0 for every device attribute, so that PyTorch uses only plain handle types.
CUresult attribute(int *value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }

CUresult context(CUcontext *current) { return *current = (CUcontext)16, CUDA_SUCCESS; }

CUresult text(CUresult, const char **text) { return *text = "an error of the simulated driver", CUDA_SUCCESS; }

CUresult success() { return CUDA_SUCCESS; }

}  // namespace

API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                                 cudaDriverEntryPointQueryResult *found) {
    static const std::map<std::string, void *> functions = {
        {"cuMemGetAllocationGranularity", (void *)granularity},
        {"cuMemAddressReserve", (void *)reserve},
        {"cuMemCreate", (void *)create},
        {"cuMemRelease", (void *)release},
        {"cuDeviceGetAttribute", (void *)attribute},
        {"cuCtxGetCurrent", (void *)context},
        {"cuGetErrorString", (void *)text},
    };
    auto known = functions.find(name);
    *function = known == functions.end() ? (void *)success : known->second;
    if (found) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
