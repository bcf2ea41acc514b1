/* relay/commands/version.h -- the version, from CMake. */
#pragma once

#ifndef PGCOURIER_VERSION
#define PGCOURIER_VERSION "0.1.0"
#endif
