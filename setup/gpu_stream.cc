// TensorFlow 2.19 and newer no longer export stream_executor::gpu::AsGpuStreamValue. Horovod declares it and calls it
// to get CUDA's handle of TensorFlow's stream. This is its definition, from TensorFlow's public interface.
// setup/horovod_targets.cmake compiles it into builds for GPUs.

#if TENSORFLOW_VERSION >= 2019000000

#include <cuda_runtime.h>

#include "tensorflow/compiler/xla/stream_executor/stream.h"

namespace stream_executor {
namespace gpu {

cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}

}  // namespace gpu
}  // namespace stream_executor

#endif
