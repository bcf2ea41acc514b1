#include "tests/contract/sink_contract.h"

#include <stdlib.h>

extern const struct sink_type sink_discard;

static struct contract_setup setup = {.name = "discard", .type = &sink_discard, .destination = "anywhere"};

int main(void)
{
    Suite *suite = suite_create("discard");
    suite_add_tcase(suite, contract_tcase(&setup));
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
