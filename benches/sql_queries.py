"""The eight queries that engines are compared by, over one table of a million rows and six columns."""

QUERIES = {
    "count(*)": "SELECT count(*) FROM {table}",
    "sum, max": "SELECT sum(duration), max(bytes) FROM {table}",
    "group by int": "SELECT step % 100 AS part, avg(duration) FROM {table} GROUP BY part",
    "group by 2 strings": "SELECT module, stage, avg(duration), count(*) FROM {table} GROUP BY module, stage",
    "last 5 steps": (
        "SELECT module, stage, avg(duration) AS avg_time FROM {table} "
        "WHERE step > (SELECT max(step) - 5 FROM {table}) GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10"
    ),
    "top 10": "SELECT {time}, module, duration FROM {table} ORDER BY duration DESC LIMIT 10",
    "window": (
        "SELECT step, total - lag(total) OVER (ORDER BY step) AS change "
        "FROM (SELECT step, sum(duration) AS total FROM {table} GROUP BY step) "
        "ORDER BY change DESC NULLS LAST, step LIMIT 10"
    ),
    "join": (
        "SELECT count(*) FROM (SELECT step, module, sum(duration) AS spent FROM {table} GROUP BY step, module) AS a "
        "JOIN (SELECT step, module, max(bytes) AS most FROM {table} GROUP BY step, module) AS b "
        "ON a.step = b.step AND a.module = b.module WHERE a.spent < b.most"
    ),
}
