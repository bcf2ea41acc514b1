/* relay/commands/version.h -- the version, from CMake. */
#ifndef RELAY_VERSION_H
#define RELAY_VERSION_H

#ifndef PGCOURIER_VERSION
#define PGCOURIER_VERSION "0.1.0"
#endif

#endif
