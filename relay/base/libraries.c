#include "relay/base/libraries.h"

#include <curl/curl.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <libfyaml.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>

/* The first release of each major with the fixes of CVE-2025-1094 and CVE-2025-12818. Both are in functions that are
 * not called here (tests/lint/structure.py holds that), and distributions mend older releases without another number:
 * so it is told, and is no reason to stand still. Majors before 14 lack what a relay needs, those after 18 are later.
 */
static const struct {
    int major, minor;
} libpq_mended[] = {{14, 20}, {15, 15}, {16, 11}, {17, 7}, {18, 1}};

bool libraries_libpq_is_bad(int version, char *ret, size_t size)
{
    int major = version / 10000, minor = version % 10000;
    for (size_t i = 0; i < sizeof libpq_mended / sizeof libpq_mended[0]; i++) {
        if (libpq_mended[i].major != major || minor >= libpq_mended[i].minor)
            continue;
        snprintf(ret, size, "libpq %d.%d is older than %d.%d, which mends CVE-2025-1094 and CVE-2025-12818", major,
                 minor, major, libpq_mended[i].minor);
        return true;
    }
    return false;
}

void libraries_show(char *ret, size_t size)
{
    /* hiredis does not say which one is there, only which one it was. */
    snprintf(ret, size, "libpq %d.%d, librdkafka %s, libcurl %s, hiredis %d.%d.%d, libfyaml %s, jansson %s",
             PQlibVersion() / 10000, PQlibVersion() % 10000, rd_kafka_version_str(),
             curl_version_info(CURLVERSION_NOW)->version, HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH,
             fy_library_version(), jansson_version_str());
}
