/* An NVML that reports no processes and no links. */
#define NOT_SUPPORTED 3

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = (void *)8; return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *all) { *count = 0; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13020; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *info) { return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(void *device, void *info) { return NOT_SUPPORTED; }
