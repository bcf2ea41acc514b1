/* sinks/sink.h -- the contract every destination implements.
 *
 * A sink takes deliveries and later gives each exactly one verdict. Every call comes from the relay's one
 * thread and none blocks. Verdicts are given only from inside progress() and close(), never from submit(),
 * so a caller iterating over its deliveries is never surprised. Sinks never log and never touch the database.
 *
 *   open -> (submit* -> prepare -> poll(2) -> progress)* -> close
 *
 * Within one sink, deliveries of one key are submitted in id order. Without a trait that says more, the engine
 * submits the next one only after the verdict of the one before. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/exposure.h"
#include "relay/base/pollset.h"
#include "relay/base/setting.h"
#include "sinks/delivery.h"

enum sink_trait {
    /* Many events of one key may be in flight at once: they arrive in submit order, and if one fails, so do
     * all later ones of that key that are in flight. */
    SINK_KEEPS_KEY_ORDER = 1 << 0,

    /* Events of one key and destination that are submitted side by side (delivery.joined) are a run: they arrive in
     * submit order, and if one fails, so do all later ones of the run. The next run of a key is submitted after the
     * verdicts of the one before. */
    SINK_TAKES_RUNS = 1 << 1
};

/* How long a run may be that a sink takes (SINK_TAKES_RUNS). A single event of any size is no run. */
struct sink_run_limits {
    size_t events_min; /* fewer are not worth it: then they go one at a time */
    size_t events_max;
    size_t bytes_max; /* of payloads */
};

/* What a probe found out about a destination. */
enum reach { REACH_PENDING = 0, REACH_YES, REACH_NO };

struct sink; /* instance; each sink embeds it as its first member */

struct sink_type {
    const char *name; /* value of `type:` in the configuration, e.g. "kafka" */
    const char *help; /* one line for the documentation */

    /* The sink's own keys in the configuration, and the struct they fill. */
    const struct setting *settings; /* ends with a row whose name is NULL */
    size_t settings_size;           /* sizeof that struct */

    /* Does the destination template have to be given? (A file's line just carries it.) */
    bool needs_destination;

    struct sink_run_limits run; /* what SINK_TAKES_RUNS is about */
    int64_t max_in_flight;      /* what the setting of that name is when nobody gives it; 0 = as with every sink */

    /* With these settings, so many bytes of the answer to one event are kept at most (delivery.response); 0: none, and
     * *ret_why says why not. NULL: this sink gets no answers. */
    int64_t (*response_max)(const void *settings, const char **ret_why);

    /* ---- required ---- */

    /* Checks what the table cannot say and creates an instance; does not wait for the network. `settings` is
     * borrowed and outlives the sink; `name` likewise. NULL and *err when this can never work. */
    struct sink *(*open)(const char *name, const void *settings, struct error *err);

    /* Takes a prefix of ds[0..n), in order, and returns its length. A short count means "full: call again after
     * a verdict". Events stay valid and unmodified until their verdict, so nothing needs copying. */
    size_t (*submit)(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now);

    /* Adds the descriptors and the next deadline that progress() is waiting for. */
    void (*prepare)(struct sink *sink, struct pollset *ps);

    /* Does whatever I/O is possible now and resolves what became known. */
    void (*progress)(struct sink *sink, const struct pollset *ps, instant_us now);

    /* Frees `sink`; unresolved deliveries become VERDICT_UNKNOWN. Does not wait longer than 1 s. */
    void (*close)(struct sink *sink);

    /* ---- optional: NULL means there is nothing to do ---- */

    /* Is the destination there? Called again and again while its circuit is open; the first call starts finding
     * out, later ones report; after YES or NO the next call starts afresh. An empty destination stands for the sink
     * as a whole. No event is sent. With NO, *err is why: what a person needs who is to mend it. NULL: the engine tries
     * with one event. Works in prepare/progress like everything else. */
    enum reach (*probe)(struct sink *sink, struct span destination, instant_us now, struct error *err);

    /* The claim of `d`, which has no verdict yet, is lost, or its lease is about to be: its key may be delivered by
     * another relay at any moment. What can be stopped is stopped; the verdict is given as ever, with ERROR_LOST_CLAIM
     * where that is why. NULL: what is under way cannot be called back. */
    void (*cancel)(struct sink *sink, struct delivery *d);

    /* What open() would say of these settings, without any effect: nothing is created and nobody is called. NULL:
     * open() has no effect either, so opening and closing is the check. */
    bool (*check)(const char *name, const void *settings, struct error *err);

    /* Do these settings lead over a network to somebody who is not verified by TLS? Then *ret says why; the way that is
     * worst comes first. Settings that check() refuses do not. NULL: this sink has no network of its own. */
    bool (*exposed)(const void *settings, struct exposure *ret);

    /* SIGHUP: open files again. */
    bool (*reopen)(struct sink *sink, struct error *err);
};

struct sink {
    const struct sink_type *type;
    const char *name;
    unsigned traits;      /* enum sink_trait bits; may depend on the settings, and change in progress() */
    size_t in_flight_max; /* more would do no good at present; 0: no such bound; may change in progress() */
    size_t keys_max;      /* for one claim, where deliveries are few and long; 0: any number */
    size_t in_flight;     /* taken, no verdict yet; kept by sink_submit() and delivery_resolve() */
    struct delivery *resolved, **resolved_end; /* verdicts the engine has not looked at; in order of arrival */
};

/* All types, in the order of the documentation; NULL after the last. sinks/registry.c is the one line that adds
 * a sink. */
extern const struct sink_type *const sink_types[];
const struct sink_type *sink_type_find(const char *name); /* NULL if there is none */

/* The only way to call a sink: each checks the contract, then dispatches. */
struct sink *sink_open(const struct sink_type *type, const char *name, const void *settings,
                       struct error *err) MUST_CHECK;
bool sink_check(const struct sink_type *type, const char *name, const void *settings, struct error *err) MUST_CHECK;
size_t sink_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now) MUST_CHECK;
void sink_prepare(struct sink *sink, struct pollset *ps);
void sink_progress(struct sink *sink, const struct pollset *ps, instant_us now);
enum reach sink_probe(struct sink *sink, struct span destination, instant_us now, struct error *err);
void sink_cancel(struct delivery *d); /* a no-op unless a sink has it and owes it a verdict */
bool sink_reopen(struct sink *sink, struct error *err) MUST_CHECK;
void sink_close(struct sink *sink); /* NULL is a no-op */

/* Takes one delivery that has its verdict, oldest verdict first; NULL when there is none. For the engine. */
struct delivery *sink_take_resolved(struct sink *sink);
