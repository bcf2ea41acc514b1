#include "tests/contract/sink_contract.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>

extern const struct sink_type sink_discard;

static struct contract_setup setup = {.name = "discard", .type = &sink_discard, .destination = "anywhere"};

int main(void)
{
    Suite *suite = suite_create("discard");
    suite_add_tcase(suite, contract_tcase(&setup));
    return run_suite(suite);
}
