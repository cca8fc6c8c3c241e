/* A libnvidia-ml.so.1 for tests. It answers from the file that NVML_STUB names, read anew at each call:
 *
 *     count = 1
 *     0.utilization = 87
 *     0.power = !15        answers error 15 (GPU_IS_LOST)
 *
 * A key that is absent is answered with 3 (NOT_SUPPORTED). With -DOLD_DRIVER the functions that came with
 * drivers 510 to 570 are left out, so that their callers get "function not found".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
typedef int Status;
typedef void *Device;

static Status look(const char *key, char *out, size_t size)
{
    const char *name = getenv("NVML_STUB");
    FILE *file = name ? fopen(name, "r") : NULL;
    char line[4096];
    Status status = NOT_SUPPORTED;
    size_t length = strlen(key);
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || strncmp(line + length, " = ", 3))
            continue;
        char *value = line + length + 3;
        value[strcspn(value, "\n")] = 0;
        if (value[0] == '!') {
            status = atoi(value + 1);
        } else {
            snprintf(out, size, "%s", value);
            status = SUCCESS;
        }
        break;
    }
    if (file)
        fclose(file);
    return status;
}

static Status text_of(Device device, const char *field, char *out, size_t size)
{
    char key[128];
    snprintf(key, sizeof key, "%ld.%s", (long)(intptr_t)device - 1, field);
    return look(key, out, size);
}

static Status number_of(Device device, const char *field, unsigned long long *out)
{
    char value[64];
    Status status = text_of(device, field, value, sizeof value);
    if (status == SUCCESS)
        *out = strtoull(value, NULL, 0);
    return status;
}

static Status whole_of(Device device, const char *field, unsigned *out)
{
    unsigned long long value = 0;
    Status status = number_of(device, field, &value);
    if (status == SUCCESS)
        *out = (unsigned)value;
    return status;
}

static Status system_text(const char *key, char *out, unsigned size) { return look(key, out, size); }

Status nvmlInitWithFlags(unsigned flags)
{
    char value[64];
    (void)flags;
    Status status = look("init", value, sizeof value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
Status nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(Status status) { (void)status; return "stub error"; }
Status nvmlSystemGetDriverVersion(char *out, unsigned size) { return system_text("driver", out, size); }
Status nvmlSystemGetCudaDriverVersion(int *out)
{
    char value[64];
    Status status = look("cuda", value, sizeof value);
    if (status == SUCCESS)
        *out = atoi(value);
    return status;
}
#ifndef OLD_DRIVER
Status nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
#endif
Status nvmlDeviceGetCount_v2(unsigned *out)
{
    char value[64];
    Status status = look("count", value, sizeof value);
    if (status == SUCCESS)
        *out = (unsigned)atoi(value);
    return status;
}
Status nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out)
{
    char value[64];
    Device device = (Device)(intptr_t)(index + 1);
    Status status = text_of(device, "handle", value, sizeof value);
    *out = device;
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
Status nvmlDeviceGetName(Device device, char *out, unsigned size) { return text_of(device, "name", out, size); }
Status nvmlDeviceGetUUID(Device device, char *out, unsigned size) { return text_of(device, "uuid", out, size); }

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char busId[32];
} Pci;
Status nvmlDeviceGetPciInfo_v3(Device device, Pci *out)
{
    memset(out, 0, sizeof *out);
    Status status = text_of(device, "pci", out->busId, sizeof out->busId);
    if (status == SUCCESS)
        sscanf(out->busId, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return status;
}

typedef struct { unsigned long long total, free, used; } Memory;
Status nvmlDeviceGetMemoryInfo(Device device, Memory *out)
{
    unsigned long long reserved = 0;
    Status status = number_of(device, "memory.total", &out->total);
    if (status == SUCCESS)
        status = number_of(device, "memory.used", &out->used);
    number_of(device, "memory.reserved", &reserved);
    out->used += reserved; /* as the older function does */
    out->free = out->total - out->used;
    return status;
}
#ifndef OLD_DRIVER
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
Status nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *out)
{
    Status status = number_of(device, "memory.total", &out->total);
    if (status == SUCCESS)
        status = number_of(device, "memory.used", &out->used);
    number_of(device, "memory.reserved", &out->reserved);
    out->free = out->total - out->used - out->reserved;
    return status;
}
#endif

typedef struct { unsigned gpu, memory; } Utilization;
Status nvmlDeviceGetUtilizationRates(Device device, Utilization *out)
{
    out->memory = 0;
    return whole_of(device, "utilization", &out->gpu);
}
Status nvmlDeviceGetPerformanceState(Device device, unsigned *out) { return whole_of(device, "pstate", out); }
Status nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *out)
{
    return type == 1 ? whole_of(device, "sm_clock", out) : INVALID_ARGUMENT;
}
Status nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned *out)
{
    return type == 1 ? whole_of(device, "sm_clock_max", out) : INVALID_ARGUMENT;
}
Status nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out)
{
    return sensor == 0 ? whole_of(device, "temperature", out) : INVALID_ARGUMENT;
}
Status nvmlDeviceGetTemperatureThreshold(Device device, unsigned threshold, unsigned *out)
{
    return threshold == 1 ? whole_of(device, "temperature.slowdown", out) : INVALID_ARGUMENT;
}
#ifndef OLD_DRIVER
typedef struct { unsigned version; int sensor, temperature; } Temperature;
Status nvmlDeviceGetTemperatureV(Device device, Temperature *out)
{
    return whole_of(device, "temperature", (unsigned *)&out->temperature);
}
typedef struct { unsigned version; int margin; } Margin;
Status nvmlDeviceGetMarginTemperature(Device device, Margin *out)
{
    return whole_of(device, "temperature.margin", (unsigned *)&out->margin);
}
Status nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *out)
{
    return number_of(device, "reasons", out);
}
#endif
Status nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *out)
{
    return number_of(device, "reasons", out);
}
Status nvmlDeviceGetPowerUsage(Device device, unsigned *out) { return whole_of(device, "power", out); }
Status nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *out) { return whole_of(device, "power.limit", out); }
Status nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter, unsigned long long *out)
{
    return type == 1 && counter == 0 ? number_of(device, "ecc", out) : INVALID_ARGUMENT;
}
Status nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed)
{
    *corrected = *uncorrected = 0;
    Status status = whole_of(device, "remap.pending", pending);
    return status == SUCCESS ? whole_of(device, "remap.failed", failed) : status;
}
Status nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *out) { return whole_of(device, "pcie.width", out); }
Status nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *out) { return whole_of(device, "pcie.width_max", out); }
Status nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *out) { return whole_of(device, "pcie.gen", out); }
Status nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *out) { return whole_of(device, "pcie.gen_max", out); }
Status nvmlDeviceGetPcieReplayCounter(Device device, unsigned *out) { return whole_of(device, "pcie.replays", out); }

Status nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *out)
{
    char key[64];
    unsigned links = 0;
    Status status = whole_of(device, "links", &links);
    if (status != SUCCESS)
        return status;
    if (link >= links)
        return INVALID_ARGUMENT;
    *out = 0;
    snprintf(key, sizeof key, "link.%u.up", link);
    whole_of(device, key, out);
    return SUCCESS;
}
Status nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned link, unsigned counter, unsigned long long *out)
{
    char key[64];
    snprintf(key, sizeof key, "link.%u.errors.%u", link, counter);
    return number_of(device, key, out);
}
Status nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    Status status = whole_of(device, "mig", current);
    *pending = *current;
    return status;
}

/* 0.processes = 4711:1073741824 4712:5368709120 */
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
static Status processes_of(Device device, unsigned *count, Process *out)
{
    char value[4096];
    unsigned found = 0;
    Status status = text_of(device, "processes", value, sizeof value);
    if (status != SUCCESS)
        return status;
    for (char *word = strtok(value, " "); word; word = strtok(NULL, " ")) {
        char *colon = strchr(word, ':');
        if (colon && found < *count && out) {
            Process process = {(unsigned)atoi(word), strtoull(colon + 1, NULL, 0), 0xFFFFFFFF, 0xFFFFFFFF};
            out[found] = process;
        }
        found += colon != NULL;
    }
    status = found > *count ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return status;
}
Status nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, Process *out)
{
    return processes_of(device, count, out);
}
#ifndef OLD_DRIVER
Status nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *out)
{
    return processes_of(device, count, out);
}
#endif
