/* sinks/exec/exec_command.h -- what is run: program and environment.
 *
 *   exec_command_open -> exec_command_environment* -> exec_command_close */
#pragma once

#include "sinks/delivery.h"
#include "sinks/exec/exec_process.h"
#include "sinks/exec/exec_settings.h"

struct exec_command;

/* Finds the program and checks the rest; runs nothing. `settings` outlives the result. NULL and *err (ERROR_CONFIG, or
 * ERROR_RESOURCE when it may work later). */
struct exec_command *exec_command_open(const struct exec_settings *settings, struct error *err);
void exec_command_close(struct exec_command *command); /* NULL is a no-op */

const struct exec_program *exec_command_program(const struct exec_command *command);

/* The whole environment for one command: what is configured, and of `d` what is known without reading its JSON, or only
 * how many there are when `count` is above 1. In the delivery's arena. */
char *const *exec_command_environment(const struct exec_command *command, const struct delivery *d, size_t count);
