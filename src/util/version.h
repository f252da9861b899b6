/* The program's version, from the build (CMake's project version). */
#ifndef SPILL_UTIL_VERSION_H
#define SPILL_UTIL_VERSION_H

#ifndef SP_VERSION
#error "SP_VERSION is defined by the build"
#endif

#endif
