# cmake -DOUT=<base> -DSQL="a.sql;b.sql" -P embed.cmake
# Writes <base>.h and <base>.c: one `const char sql_<stem>[]` a file, and sql_schema[], the migrations
# (sql/schema/NNN_*.sql) in the order of their numbers. A line `-- include upkeep/after_look.sql` of a migration becomes that
# statement, so that relays and workers run the same one. Files of sql/state/ are for such lines alone.
function(include_statements text state ret)
    string(REGEX MATCHALL "-- include [a-z_]+/[a-z_]+[.]sql" lines "${text}")
    foreach(line IN LISTS lines)
        string(REPLACE "-- include " "" file "${line}")
        file(READ "${CMAKE_CURRENT_LIST_DIR}/${file}" statement)
        if(file MATCHES "^state/")
            string(REPLACE ":state." "${state}." statement "${statement}")
        else()
            string(REGEX REPLACE "(^|\n)--[^\n]*" "" statement "${statement}")
            string(STRIP "${statement}" statement)
            string(REGEX REPLACE ";$" "" statement "${statement}")
        endif()
        string(REPLACE "${line}" "${statement}" text "${text}")
    endforeach()
    set(${ret} "${text}" PARENT_SCOPE)
endfunction()

set(declarations "")
set(definitions "")
set(schema "")
foreach(file IN LISTS SQL)
    if(file MATCHES "/sql/state/")
        continue()
    endif()
    get_filename_component(stem "${file}" NAME_WE)
    file(READ "${file}" text)
    if(file MATCHES "/sql/schema/")
        include_statements("${text}" outbox text)
    else()
        include_statements("${text}" :state text)
    endif()
    string(HEX "${text}" hex)
    string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
    if(file MATCHES "/sql/schema/([0-9][0-9][0-9])_")
        set(symbol "sql_schema_${CMAKE_MATCH_1}")
        list(APPEND schema "${CMAKE_MATCH_1}|${stem}")
        string(APPEND definitions "static ")
    else()
        set(symbol "sql_${stem}")
        string(APPEND declarations "extern const char ${symbol}[];\n")
    endif()
    string(APPEND definitions "const char ${symbol}[] = {${bytes}0};\n")
endforeach()
list(SORT schema)
set(rows "")
foreach(row IN LISTS schema)
    string(REPLACE "|" ";" parts "${row}")
    list(GET parts 0 number)
    list(GET parts 1 stem)
    string(REGEX REPLACE "^0+" "" version "${number}")
    string(APPEND rows "    {${version}, \"${stem}\", sql_schema_${number}},\n")
endforeach()
get_filename_component(base "${OUT}" NAME)
file(WRITE "${OUT}.h" "/* Generated from sql/. Do not edit. */
#pragma once
struct sql_migration {
    int version;
    const char *name, *text;
};
extern const struct sql_migration sql_schema[]; /* in order; version 0 after the last */
${declarations}")
file(WRITE "${OUT}.c" "#include \"${base}.h\"\n${definitions}
const struct sql_migration sql_schema[] = {\n${rows}    {0, 0, 0},\n};\n")
