"""A schema of somebody without rights that has, in the place of what PostgreSQL has in pg_catalog, what raises an error when
it is called: each operator and function that a statement of ours may use, with the types that it may use it with."""

import glob
import os
import re

from tests.support.postgres import CREATE_ROLE
from tests.support.process import REPO

INTRUDER = "intruder"
SCHEMA = "hostile"
CALLED = "hostile code was called"

# Of a pair of these some are exact in pg_catalog, and all others are what an operator that is made here fits better.
TYPES = ["text", "varchar", "bpchar", "name", '"char"', "oid", "regclass", "int2", "int4", "int8", "float8", "numeric", "uuid", "bytea",
         "timestamptz", "timestamp", "date", "interval", "jsonb", "json", "bool", "xid", "tid", "text[]", "varchar[]", "name[]", "int4[]",
         "int8[]", "oid[]", "uuid[]"]
OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|`?]+")
CALL = re.compile(r"\b([a-z_][a-z_0-9]*)\s*\(")
RELATION = re.compile(r"\b(?:from|join)\s+(?:pg_catalog\.)?(pg_[a-z_]+)\b")
TYPE_NAMES = ["text", "name", "oid", "uuid", "jsonb", "bytea", "regclass", "timestamptz", "tid", "int8"]

# Whoever creates things may do so in a schema of his own, and in public up to PostgreSQL 14.
BEGIN = f"""
set client_min_messages = error;
create schema {SCHEMA} authorization {INTRUDER};
grant usage on schema {SCHEMA} to public;
set role {INTRUDER};
set search_path = pg_catalog;
"""

OPERATORS = """
do $do$
declare
    l text; r text; o text; gives text;
    kinds text[] := %(types)s;
begin
    foreach l in array kinds loop
        foreach r in array kinds loop
            for gives in select distinct unnest(array['bool', l]) loop
                execute format($f$create function %(schema)s.%%I(a %%s, b %%s) returns %%s language plpgsql immutable as
                    'begin raise exception ''%(called)s: an operator of %%s and %%s''; end'$f$,
                    'operator_' || gives, l, r, gives, replace(l, '"', ''), replace(r, '"', ''));
            end loop;
            foreach o in array %(compares)s loop
                execute format('create operator %(schema)s.%%s (leftarg = %%s, rightarg = %%s, function = %(schema)s.operator_bool)', o, l, r);
            end loop;
            foreach o in array %(computes)s loop
                execute format('create operator %(schema)s.%%s (leftarg = %%s, rightarg = %%s, function = %(schema)s.%%I)', o, l, r,
                               'operator_' || l);
            end loop;
        end loop;
    end loop;
end
$do$;
"""

# The functions of these names with their own types, and with the strings among them as varchar and as name.
FUNCTIONS = """
do $do$
declare
    f record; given text; variant text;
begin
    for f in select p.proname, oidvectortypes(p.proargtypes) as given, format_type(p.prorettype, null) as gives, p.proretset
               from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind in ('f', 'a') and p.proname = any (%(functions)s)
    loop
        foreach variant in array '{text,varchar,name}'::text[] loop
            given := regexp_replace(f.given, '\\mtext\\M', variant, 'g');
            begin
                execute format($f$create function %(schema)s.%%I(%%s) returns %%s%%s language plpgsql immutable as
                    'begin raise exception ''%(called)s: %%s(%%s)''; end'$f$,
                    f.proname, given, case when f.proretset then 'setof ' else '' end, f.gives, f.proname, replace(given, '"', ''));
            exception
                when duplicate_function or invalid_function_definition or feature_not_supported or syntax_error or undefined_object then null;
            end;
        end loop;
    end loop;
end
$do$;
"""

RELATIONS = """
create function {schema}.look() returns bool language plpgsql as $$ begin raise exception '{called}: a view'; end $$;
do $do$
declare
    r text;
begin
    foreach r in array {relations} loop
        execute format('create view {schema}.%I as select %s from pg_catalog.%I where {schema}.look()', r,
                       (select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
                         where a.attrelid = r::regclass and a.attnum > 0 and a.atttypid <> 'anyarray'::regtype), r);
        execute format('grant select on {schema}.%I to public', r);
    end loop;
end
$do$;
"""


def _array(names):
    return "array[" + ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(names)) + "]::text[]"


def _statements():
    """All SQL of the program without its comments and literals."""
    for path in glob.glob(os.path.join(REPO, "sql", "*", "*.sql")):
        with open(path) as file:
            yield re.sub(r"--.*|'[^']*'", " ", file.read())


def _used(known, pattern):
    return {name for text in _statements() for name in pattern.findall(text)} & known


def build(db):
    """Creates all that, as a role that has nothing else."""
    known = {kind: {name for (name,) in db.query(sql)} for kind, sql in {
        "operator": "select distinct oprname from pg_operator where oprleft <> 0",
        "function": "select distinct proname::text from pg_proc where pronamespace = 'pg_catalog'::regnamespace",
        "relation": "select relname::text from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v')"}.items()}
    operators, compares = _used(known["operator"], OPERATOR), {"=", "<>", "<", ">", "<=", ">=", "~", "!~", "~~", "!~~", "@>", "<@", "&&", "?"}
    words = {"schema": SCHEMA, "called": CALLED, "types": _array(TYPES), "functions": _array(_used(known["function"], CALL)),
             "compares": _array(operators & compares), "computes": _array(operators - compares), "relations": _array(_used(known["relation"], RELATION))}
    assert {"=", "||", ">", "-"} <= operators, operators
    domains = "".join(f"create domain {SCHEMA}.{name} as pg_catalog.int4 check ({SCHEMA}.look());" for name in TYPE_NAMES)
    db.psql(CREATE_ROLE.format(role=INTRUDER, options="") + BEGIN + OPERATORS % words + FUNCTIONS % words +
            RELATIONS.format(**words) + domains)


def calls(server, since=0):
    """What PostgreSQL's log has of it, from a place in the log on."""
    with open(server.log_path, errors="replace") as log:
        log.seek(since)
        return [line for line in log.read().splitlines() if CALLED in line]
