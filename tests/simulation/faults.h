/* tests/simulation/faults.h -- what happens to whole parts of the system at set times; and the operator, who opens keys
 * again once all is well. */
#ifndef TESTS_SIMULATION_FAULTS_H
#define TESTS_SIMULATION_FAULTS_H

#include "relay/base/clock.h"

void faults_clear(void);
instant_us faults_next(void);
void faults_step(void);

#endif
