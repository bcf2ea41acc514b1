/* tests/contract/exec/exec_setup.h -- an exec sink whose command is a script of the test, in a folder of its own. */
#ifndef TESTS_CONTRACT_EXEC_SETUP_H
#define TESTS_CONTRACT_EXEC_SETUP_H

#include "sinks/exec/exec_command.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/run_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_MS 30000

extern const struct sink_type sink_exec;
extern struct contract_setup exec_setup, exec_batch_setup;

/* What every test of exec_tcase() starts with; the command's working directory, and $DIR where `environment` is left
 * alone. */
extern struct exec_settings settings;
extern char directory[128];

TCase *exec_tcase(const char *name);

void use(const char *script); /* sh -c SCRIPT */
void write_script(const char *path, const char *text);

char *file_text(const char *name);                  /* of the folder; "" when there is none. The caller frees it */
void file_is(const char *name, const char *wanted); /* the text of the file */
bool file_comes(const char *name);                  /* within PATIENCE_MS */

void all_arrive(struct contract *c); /* runs, closes, and all were acked */
void deliver_one(const char *key);   /* that is acked */

/* One event whose cause is `text` behind the path of the program. */
void one_fails(enum verdict verdict, enum error_kind kind, const char *text);

#endif
