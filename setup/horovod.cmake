# CMake reads this before Horovod's own files (CMAKE_TOOLCHAIN_FILE, from setup/horovod_wheel.py).

# Without -g the wheel has 1 MB instead of 17; Horovod itself makes -O3 of -O2.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG" CACHE STRING "")

# Where the loader finds MPI and NCCL, relative to the wheel's library: the wheel serves other environments than the
# one it was built in, long after that one is gone. Not for an MPI of the site, whose absolute path is the right one.
if(NOT "$ENV{LABS_RPATH}" STREQUAL "")
    set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
    set(CMAKE_INSTALL_RPATH "$ENV{LABS_RPATH}")
endif()

# Horovod's FindCUDAToolkit is older than conda's folder targets/, and CMake looks for libnccl.so where the wheel
# nvidia-nccl-cu12 has libnccl.so.2 alone: setup/gpu.py has found them.
if(NOT "$ENV{LABS_NCCL_LIBRARY}" STREQUAL "")
    set(CUDAToolkit_INCLUDE_DIR "$ENV{LABS_CUDA_INCLUDE}" CACHE PATH "")
    set(CUDA_CUDART "$ENV{LABS_CUDA_LIBRARY}" CACHE FILEPATH "")
    set(NCCL_LIBRARY "$ENV{LABS_NCCL_LIBRARY}" CACHE FILEPATH "")
endif()

# What is built, and in how many units.
set(CMAKE_PROJECT_horovod_INCLUDE "${CMAKE_CURRENT_LIST_DIR}/horovod_targets.cmake")

# A build for CPUs compiles nothing with nvcc, so do not look for one: testing it takes four seconds, and a broken one
# would end the build.
if("$ENV{HOROVOD_GPU_OPERATIONS}" STREQUAL "")
    set(CMAKE_CUDA_COMPILER "")
    set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
endif()
