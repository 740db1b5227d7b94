#!/usr/bin/env bash
# Puts Horovod into .venv, for the engine of that name. Nobody offers it built, so that it is compiled once for each
# version of Python and torch: some minutes. The wheel is kept outside the clone, where the next one finds it.
#   tools/horovod.sh            build it if there is no wheel, and install it
#   tools/horovod.sh --built    is there a wheel? Answers by the exit code alone.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.28.1
python=.venv/bin/python
compiler=${REAL_CXX:-g++}
made_for=$("$python" -c 'import platform, sys, torch
print(f"cp{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}-torch{torch.__version__}")')
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/bigbatch/wheels/horovod-$version-$made_for
pip=("$python" -m pip --quiet --disable-pip-version-check)

built() { compgen -G "$wheels/horovod-*.whl" > /dev/null; }

# `import horovod.torch` alone succeeds without its library
works() { "$python" -c 'import horovod.torch.mpi_lib_v2' 2> /dev/null; }

build() {
  for tool in cmake make "$compiler"; do
    command -v "$tool" > /dev/null || {
      echo "building Horovod needs $tool: install it (Debian: apt-get install cmake g++ make)" >&2
      exit 1
    }
  done
  # not beside the wheel: CMake takes the + of a torch version in a path for a regular expression
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # what only the build needs stays out of .venv
  "${pip[@]}" install --target "$work/tools" cffi cloudpickle packaging psutil pyyaml 'setuptools>=77' wheel
  echo "building Horovod $version for $made_for: some minutes"
  # MAKEFLAGS, or it starts 8 compilers; CMAKE_POLICY_VERSION_MINIMUM for CMake 4, which is too new for it
  env PYTHONPATH="$work/tools" TMPDIR="$work" CXX="$PWD/tools/cxx17" CXXFLAGS=-w \
    MAKEFLAGS="-j$(nproc)" CMAKE_POLICY_VERSION_MINIMUM=3.5 \
    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 \
    HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    nice -n 5 "${pip[@]}" wheel --no-build-isolation --no-deps --no-cache-dir --constraint constraints.txt \
    --wheel-dir "$work/wheel" "horovod==$version"
  mkdir -p "$wheels"
  wheel=$(basename "$work"/wheel/horovod-*.whl)
  cp "$work/wheel/$wheel" "$wheels/.$wheel.$$"
  mv "$wheels/.$wheel.$$" "$wheels/$wheel"
}

if [ "${1:-}" = --built ]; then
  built
  exit
fi

built || build
"${pip[@]}" install --constraint constraints.txt cloudpickle packaging psutil pyyaml
# one that was built for another torch has the same version, and pip would leave it there
works || "${pip[@]}" install --no-deps --no-index --force-reinstall "$wheels"/horovod-*.whl
works || { echo "the wheel in $wheels does not work here: remove it, then 'make horovod' builds it again" >&2; exit 1; }
echo "Horovod $version is in .venv"
