/* relay/commands/dead_letters.h -- dead letters, put back or dropped by hundreds.
 *
 * Each transaction has LETTERS_MAX letters at most. Letters that cannot be put back are told, and stay. */
#pragma once

#include "relay/commands/dead_work.h"

#define LETTERS_MAX 256

/* All that the filter chooses. False and *err when it cannot go on; what is committed stays. */
bool dead_letters_act(struct dead_work *work, struct error *err) MUST_CHECK;
