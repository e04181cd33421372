-- gold
SELECT CAST(SUM(CASE WHEN nationality = 'British' THEN 1 ELSE 0 END) AS REAL) * 100 / COUNT(*) FROM drivers;
-- right
SELECT 100.0 * COUNT(CASE WHEN nationality = 'British' THEN driverId END) / COUNT(driverId) FROM drivers;
SELECT AVG(IIF(nationality = 'British', 100.0, 0.0)) FROM drivers;
SELECT (SELECT COUNT(*) FROM drivers WHERE nationality = 'British') * 100.0 / (SELECT COUNT(*) FROM drivers);
-- wrong
SELECT AVG(nationality = 'British') * 100 FROM drivers;
SELECT SUM(CASE WHEN nationality = 'British' THEN 1 ELSE 0 END) * 100 / COUNT(*) FROM drivers;
SELECT CAST(SUM(CASE WHEN nationality = 'British' THEN 1 ELSE 0 END) AS REAL) / COUNT(*) FROM drivers;
SELECT 100.0 * SUM(nationality = 'British') / COUNT(nationality) FROM drivers;
-- gold
SELECT T2.forename, T2.surname FROM results AS T1 INNER JOIN drivers AS T2 ON T1.driverId = T2.driverId WHERE T1.raceId = 18 ORDER BY T1.fastestLapSpeed DESC LIMIT 1;
-- right
SELECT d.forename, d.surname FROM drivers d, results r WHERE r.driverId = d.driverId AND r.raceId = 18 ORDER BY -r.fastestLapSpeed IS NULL, -r.fastestLapSpeed LIMIT 1;
-- wrong
SELECT T2.forename, T2.surname FROM results AS T1 INNER JOIN drivers AS T2 ON T1.driverId = T2.driverId WHERE T1.raceId = 18 ORDER BY T1.fastestLapSpeed LIMIT 1;
SELECT T2.forename, T2.surname FROM results AS T1 INNER JOIN drivers AS T2 ON T1.driverId = T2.driverId WHERE T1.raceId = 18 ORDER BY T1.milliseconds LIMIT 1;
SELECT T2.forename, T2.surname FROM results AS T1 INNER JOIN drivers AS T2 ON T1.driverId = T2.driverId ORDER BY T1.fastestLapSpeed DESC LIMIT 1;
-- gold
SELECT COUNT(DISTINCT T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.position IS NULL;
-- right
SELECT COUNT(*) FROM drivers d WHERE EXISTS (SELECT 1 FROM results r JOIN races a USING (raceId) WHERE r.driverId = d.driverId AND a.year = 2010 AND r.position IS NULL);
SELECT COUNT(*) FROM (SELECT T1.driverId FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.position IS NULL GROUP BY 1);
-- wrong
SELECT COUNT(T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.position IS NULL;
SELECT COUNT(DISTINCT T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.position IS NOT NULL;
SELECT COUNT(DISTINCT T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year >= 2010 AND T1.position IS NULL;
SELECT COUNT(DISTINCT T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.position = NULL;
SELECT COUNT(DISTINCT T1.driverId) FROM results AS T1 INNER JOIN races AS T2 ON T1.raceId = T2.raceId WHERE T2.year = 2010 AND T1.rank IS NULL;
-- gold
SELECT forename, surname FROM drivers WHERE STRFTIME('%Y', dob) = '1985' AND nationality = 'British';
-- right
SELECT forename, surname FROM drivers WHERE dob BETWEEN '1985-01-01' AND '1985-12-31' AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE SUBSTR(dob, 1, 4) = '1985' AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE CAST(STRFTIME('%Y', dob) AS INTEGER) = 1985 AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE dob LIKE '1985-%' AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE dob >= '1985-01-01' AND dob < '1986-01-01' AND nationality = 'British';
-- wrong
SELECT forename, surname FROM drivers WHERE STRFTIME('%Y', dob) = 1985 AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE STRFTIME('%Y', dob) > '1985' AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE dob BETWEEN '1985' AND '1986-01-02' AND nationality = 'British';
SELECT forename, surname FROM drivers WHERE STRFTIME('%Y', dob) = '1985' OR nationality = 'British';
SELECT forename, surname FROM drivers WHERE STRFTIME('%Y', dob) = '1985';
-- gold
SELECT T2.name, SUM(T1.points) FROM results AS T1 INNER JOIN constructors AS T2 ON T1.constructorId = T2.constructorId GROUP BY T2.name HAVING SUM(T1.points) > 20 ORDER BY SUM(T1.points) DESC, T2.name;
-- right
SELECT name, total FROM (SELECT c.name, (SELECT SUM(points) FROM results r WHERE r.constructorId = c.constructorId) AS total FROM constructors c) WHERE total > 20 ORDER BY total DESC, name;
WITH t AS (SELECT constructorId, SUM(points) AS p FROM results GROUP BY constructorId) SELECT c.name, t.p FROM t JOIN constructors c ON c.constructorId = t.constructorId WHERE t.p > 20 ORDER BY t.p DESC, c.name ASC;
-- wrong
SELECT T2.name, SUM(T1.points) FROM results AS T1 INNER JOIN constructors AS T2 ON T1.constructorId = T2.constructorId GROUP BY T2.name HAVING SUM(T1.points) >= 20 ORDER BY SUM(T1.points) DESC, T2.name;
SELECT T2.name, SUM(T1.points) FROM results AS T1 INNER JOIN constructors AS T2 ON T1.constructorId = T2.constructorId GROUP BY T2.name HAVING COUNT(T1.points) > 20 ORDER BY SUM(T1.points) DESC, T2.name;
SELECT T2.name, SUM(DISTINCT T1.points) FROM results AS T1 INNER JOIN constructors AS T2 ON T1.constructorId = T2.constructorId GROUP BY T2.name HAVING SUM(T1.points) > 20 ORDER BY SUM(T1.points) DESC, T2.name;
SELECT T2.name, SUM(T1.points) FROM results AS T1 INNER JOIN constructors AS T2 ON T1.constructorId = T2.constructorId WHERE T1.points > 0 GROUP BY T2.name HAVING MAX(T1.points) > 6 ORDER BY SUM(T1.points) DESC, T2.name;
-- gold
SELECT name FROM circuits WHERE country = 'Malaysia' AND lat < 3;
-- right
SELECT name FROM circuits WHERE circuitId IN (SELECT circuitId FROM circuits WHERE lat < 3.0 INTERSECT SELECT circuitId FROM circuits WHERE country = 'Malaysia');
SELECT name FROM circuits WHERE NOT (country <> 'Malaysia' OR lat >= 3);
-- wrong
SELECT name FROM circuits WHERE country = 'Malaysia' AND lat <= 3;
SELECT DISTINCT name FROM circuits WHERE country = 'Malaysia' AND lat < 3;
SELECT name FROM circuits WHERE location = 'Malaysia' AND lat < 3;
-- gold
SELECT r.name FROM races r WHERE NOT EXISTS (SELECT 1 FROM qualifying q WHERE q.raceId = r.raceId);
-- right
SELECT name FROM races WHERE raceId NOT IN (SELECT raceId FROM qualifying);
SELECT r.name FROM races r LEFT JOIN qualifying q ON q.raceId = r.raceId WHERE q.qualifyId IS NULL;
SELECT name FROM races JOIN (SELECT raceId FROM races EXCEPT SELECT raceId FROM qualifying) USING (raceId);
SELECT r.name FROM races r WHERE (SELECT COUNT(*) FROM qualifying q WHERE q.raceId = r.raceId) = 0;
-- wrong
SELECT DISTINCT name FROM races WHERE raceId NOT IN (SELECT raceId FROM qualifying);
SELECT name FROM races EXCEPT SELECT r.name FROM races r JOIN qualifying q ON q.raceId = r.raceId;
SELECT r.name FROM races r LEFT JOIN qualifying q ON q.raceId = r.raceId WHERE q.position IS NULL;
SELECT name FROM races WHERE raceId NOT IN (SELECT raceId FROM results);
SELECT name FROM races WHERE raceId IN (SELECT raceId FROM qualifying);
-- gold
SELECT T1.surname FROM drivers T1 JOIN results T2 ON T1.driverId = T2.driverId GROUP BY T1.driverId HAVING COUNT(*) >= 10;
-- right
SELECT surname FROM drivers WHERE driverId IN (SELECT driverId FROM results GROUP BY driverId HAVING COUNT(*) > 9);
SELECT surname FROM drivers d WHERE 10 <= (SELECT COUNT(*) FROM results r WHERE r.driverId = d.driverId);
SELECT surname FROM drivers d WHERE EXISTS (SELECT 1 FROM results r WHERE r.driverId = d.driverId LIMIT 1 OFFSET 9);
-- wrong
SELECT T1.surname FROM drivers T1 JOIN results T2 ON T1.driverId = T2.driverId GROUP BY T1.surname HAVING COUNT(*) >= 10;
SELECT T1.surname FROM drivers T1 JOIN results T2 ON T1.driverId = T2.driverId GROUP BY T1.driverId HAVING COUNT(*) > 10;
SELECT T1.surname FROM drivers T1 JOIN results T2 ON T1.driverId = T2.driverId GROUP BY T1.driverId HAVING COUNT(DISTINCT T2.raceId) >= 10;
SELECT T1.surname FROM drivers T1 JOIN results T2 ON T1.driverId = T2.driverId GROUP BY T1.driverId HAVING COUNT(T2.position) >= 10;
-- gold
SELECT AVG(fastestLapSpeed) FROM results WHERE constructorId IN (SELECT constructorId FROM constructors WHERE nationality = 'Italian');
-- right
SELECT SUM(fastestLapSpeed) / COUNT(fastestLapSpeed) FROM results r JOIN constructors c ON r.constructorId = c.constructorId AND c.nationality = 'Italian';
SELECT AVG(r.fastestLapSpeed) FROM results r LEFT JOIN constructors c ON r.constructorId = c.constructorId WHERE c.nationality = 'Italian';
-- wrong
SELECT SUM(fastestLapSpeed) / COUNT(*) FROM results r JOIN constructors c ON r.constructorId = c.constructorId AND c.nationality = 'Italian';
SELECT AVG(DISTINCT fastestLapSpeed) FROM results WHERE constructorId IN (SELECT constructorId FROM constructors WHERE nationality = 'Italian');
SELECT AVG(COALESCE(fastestLapSpeed, 0)) FROM results WHERE constructorId IN (SELECT constructorId FROM constructors WHERE nationality = 'Italian');
SELECT ROUND(AVG(fastestLapSpeed), 2) FROM results WHERE constructorId IN (SELECT constructorId FROM constructors WHERE nationality = 'Italian');
SELECT AVG(r.fastestLapSpeed) FROM results r LEFT JOIN constructors c ON r.constructorId = c.constructorId AND c.nationality = 'Italian';
SELECT MAX(fastestLapSpeed) FROM results WHERE constructorId IN (SELECT constructorId FROM constructors WHERE nationality = 'Italian');
-- gold
SELECT year, COUNT(*) FROM races GROUP BY year HAVING COUNT(*) = (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM races GROUP BY year));
-- right
WITH c AS (SELECT year, COUNT(*) AS n FROM races GROUP BY year) SELECT year, n FROM c WHERE n = (SELECT MAX(n) FROM c);
SELECT year, n FROM (SELECT year, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS k FROM races GROUP BY year) WHERE k = 1;
-- wrong
SELECT year, COUNT(*) FROM races GROUP BY year ORDER BY COUNT(*) DESC LIMIT 1;
SELECT year, MAX(n) FROM (SELECT year, COUNT(*) AS n FROM races GROUP BY year);
SELECT year, COUNT(*) FROM races GROUP BY year HAVING COUNT(*) = (SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM races GROUP BY year));
-- gold
SELECT surname, RANK() OVER (ORDER BY dob DESC) FROM drivers WHERE dob IS NOT NULL AND nationality = 'German';
-- right
SELECT d.surname, 1 + (SELECT COUNT(*) FROM drivers o WHERE o.nationality = 'German' AND o.dob > d.dob) FROM drivers d WHERE d.nationality = 'German' AND d.dob IS NOT NULL;
-- wrong
SELECT surname, DENSE_RANK() OVER (ORDER BY dob DESC) FROM drivers WHERE dob IS NOT NULL AND nationality = 'German';
SELECT surname, ROW_NUMBER() OVER (ORDER BY dob DESC) FROM drivers WHERE dob IS NOT NULL AND nationality = 'German';
SELECT surname, RANK() OVER (ORDER BY dob) FROM drivers WHERE dob IS NOT NULL AND nationality = 'German';
SELECT surname, RANK() OVER (ORDER BY dob DESC) FROM drivers WHERE nationality = 'German';
SELECT d.surname, (SELECT COUNT(*) FROM drivers o WHERE o.nationality = 'German' AND o.dob > d.dob) FROM drivers d WHERE d.nationality = 'German' AND d.dob IS NOT NULL;
-- gold
SELECT COUNT(*) FROM drivers WHERE code IS NULL OR code = '';
-- right
SELECT SUM(CASE WHEN COALESCE(code, '') = '' THEN 1 ELSE 0 END) FROM drivers;
SELECT COUNT(*) - COUNT(NULLIF(code, '')) FROM drivers;
-- wrong
SELECT COUNT(*) FROM drivers WHERE code = '';
SELECT COUNT(*) FROM drivers WHERE code IS NOT NULL;
SELECT COUNT(code) FROM drivers WHERE code IS NULL OR code = '';
-- gold
SELECT DISTINCT d.forename, d.surname FROM drivers d JOIN results r ON d.driverId = r.driverId WHERE r.position = 1 AND r.grid > 1;
-- right
SELECT forename, surname FROM drivers WHERE driverId IN (SELECT driverId FROM results WHERE position = 1 AND grid >= 2) GROUP BY forename, surname;
SELECT forename, surname FROM drivers WHERE driverId IN (SELECT driverId FROM results WHERE position = 1 AND NOT grid <= 1) UNION SELECT forename, surname FROM drivers WHERE 0;
-- wrong
SELECT forename, surname FROM drivers WHERE driverId IN (SELECT driverId FROM results WHERE position = 1 AND grid > 1);
SELECT DISTINCT d.forename, d.surname FROM drivers d JOIN results r ON d.driverId = r.driverId WHERE r.position = 1 AND r.grid >= 1;
SELECT DISTINCT d.forename, d.surname FROM drivers d JOIN results r ON d.driverId = r.driverId WHERE r.position = 1 AND r.grid <> 1;
SELECT DISTINCT d.forename, d.surname FROM drivers d JOIN results r ON d.driverId = r.driverId WHERE r.rank = 1 AND r.grid > 1;
SELECT forename, surname FROM drivers WHERE driverId IN (SELECT driverId FROM results WHERE position = 1) AND driverId IN (SELECT driverId FROM results WHERE grid > 1) GROUP BY 1, 2;
-- gold
SELECT MAX(julianday(date)) - MIN(julianday(date)) FROM races WHERE year = 2012;
-- right
SELECT julianday(MAX(date)) - julianday(MIN(date)) FROM races WHERE year = 2012;
SELECT julianday((SELECT date FROM races WHERE year = 2012 ORDER BY date DESC LIMIT 1)) - julianday((SELECT date FROM races WHERE year = 2012 ORDER BY date LIMIT 1));
-- wrong
SELECT MAX(julianday(date)) - MIN(julianday(date)) + 1 FROM races WHERE year = 2012;
SELECT MAX(julianday(date)) - AVG(julianday(date)) FROM races WHERE year = 2012;
SELECT MAX(julianday(date)) - MIN(julianday(date)) FROM races;
SELECT MAX(julianday(date)) - MIN(julianday(date)) FROM races WHERE year <= 2012;
SELECT MAX(date) - MIN(date) FROM races WHERE year = 2012;
-- gold
SELECT name, date FROM races WHERE circuitId = (SELECT circuitId FROM circuits WHERE name = 'Monza' ORDER BY circuitId LIMIT 1) ORDER BY date DESC LIMIT 3;
-- right
SELECT name, date FROM races WHERE circuitId = (SELECT MIN(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY date DESC LIMIT 3;
SELECT name, date FROM (SELECT * FROM races WHERE circuitId = (SELECT MIN(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY date DESC LIMIT 3) ORDER BY date DESC;
-- wrong
SELECT name, date FROM races WHERE circuitId = (SELECT MIN(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY date LIMIT 3;
SELECT name, date FROM races WHERE circuitId = (SELECT MAX(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY date DESC LIMIT 3;
SELECT name, date FROM races WHERE circuitId IN (SELECT circuitId FROM circuits WHERE name = 'Monza') ORDER BY date DESC LIMIT 3;
SELECT name, date FROM races WHERE circuitId = (SELECT MIN(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY date DESC LIMIT 4;
SELECT name, date FROM races WHERE circuitId = (SELECT MIN(circuitId) FROM circuits WHERE name = 'Monza') ORDER BY year DESC LIMIT 3;
-- gold
SELECT T1.nationality, COUNT(*) FROM drivers T1 GROUP BY T1.nationality;
-- right
SELECT DISTINCT nationality, COUNT(*) OVER (PARTITION BY nationality) FROM drivers;
SELECT nationality, SUM(1) FROM drivers GROUP BY nationality;
SELECT nationality, COUNT(driverId) FROM drivers GROUP BY 1 ORDER BY 2;
-- wrong
SELECT nationality, COUNT(nationality) FROM drivers GROUP BY nationality;
SELECT nationality, COUNT(*) FROM drivers WHERE nationality IS NOT NULL GROUP BY nationality;
SELECT nationality, COUNT(DISTINCT surname) FROM drivers GROUP BY nationality;
SELECT COUNT(*), nationality FROM drivers GROUP BY nationality;
SELECT nationality, COUNT(code) FROM drivers GROUP BY nationality;
-- gold
SELECT surname FROM drivers WHERE surname LIKE 'H%' ORDER BY surname;
-- right
SELECT surname FROM drivers WHERE SUBSTR(surname, 1, 1) IN ('H', 'h') ORDER BY surname;
SELECT surname FROM drivers WHERE UPPER(surname) GLOB 'H*' ORDER BY 1 ASC;
-- wrong
SELECT surname FROM drivers WHERE surname LIKE 'H_%' AND surname NOT LIKE '%d' ORDER BY surname;
SELECT surname FROM drivers WHERE surname LIKE '%H' ORDER BY surname;
SELECT surname FROM drivers WHERE surname LIKE 'H%' ORDER BY surname DESC;
SELECT surname FROM drivers WHERE surname >= 'H' ORDER BY surname;
SELECT surname FROM drivers WHERE forename LIKE 'H%' ORDER BY surname;
-- gold
SELECT CAST(COUNT(CASE WHEN T1.position = 1 THEN 1 END) AS REAL) / COUNT(*) FROM results T1 JOIN races T2 ON T1.raceId = T2.raceId WHERE T2.year BETWEEN 2008 AND 2011 AND T1.constructorId = 3;
-- right
SELECT AVG(CASE WHEN position = 1 THEN 1.0 ELSE 0 END) FROM results WHERE constructorId = 3 AND raceId IN (SELECT raceId FROM races WHERE year >= 2008 AND year <= 2011);
SELECT TOTAL(position = 1) / COUNT(*) FROM results NATURAL JOIN (SELECT raceId FROM races WHERE year IN (2008, 2009, 2010, 2011)) WHERE constructorId = 3;
-- wrong
SELECT AVG(position = 1) FROM results WHERE constructorId = 3 AND raceId IN (SELECT raceId FROM races WHERE year >= 2008 AND year <= 2011);
SELECT AVG(CASE WHEN position = 1 THEN 1.0 ELSE 0 END) FROM results WHERE constructorId = 3 AND raceId IN (SELECT raceId FROM races WHERE year > 2008 AND year < 2011);
SELECT AVG(CASE WHEN position = 1 THEN 1.0 ELSE 0 END) FROM results WHERE constructorId = 3 AND raceId IN (SELECT raceId FROM races WHERE year > 2008 AND year <= 2011);
SELECT AVG(CASE WHEN position <= 1 THEN 1.0 ELSE 0 END) FROM results WHERE constructorId = 3;
SELECT COUNT(CASE WHEN T1.position = 1 THEN 1 END) / COUNT(*) FROM results T1 JOIN races T2 ON T1.raceId = T2.raceId WHERE T2.year BETWEEN 2008 AND 2011 AND T1.constructorId = 3;
-- gold
SELECT d.surname, r.year, COUNT(*) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId WHERE t.points > 0 GROUP BY d.driverId, r.year;
-- right
SELECT d.surname, x.year, x.n FROM (SELECT t.driverId, r.year, COUNT(*) AS n FROM results t, races r WHERE t.raceId = r.raceId AND t.points > 0 GROUP BY t.driverId, r.year) x JOIN drivers d USING (driverId);
SELECT (SELECT surname FROM drivers d WHERE d.driverId = t.driverId), r.year, SUM(t.points > 0) FROM results t JOIN races r ON t.raceId = r.raceId GROUP BY t.driverId, r.year HAVING SUM(t.points > 0) > 0;
-- wrong
SELECT d.surname, r.year, COUNT(*) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId WHERE t.points > 0 GROUP BY d.surname, r.year;
SELECT d.surname, r.year, COUNT(*) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId GROUP BY d.driverId, r.year;
SELECT d.surname, r.year, COUNT(DISTINCT t.raceId) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId WHERE t.points > 0 GROUP BY d.driverId, r.year;
SELECT d.surname, r.year, SUM(t.points) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId WHERE t.points > 0 GROUP BY d.driverId, r.year;
SELECT d.surname, r.year, COUNT(*) FROM results t JOIN races r ON t.raceId = r.raceId JOIN drivers d ON d.driverId = t.driverId WHERE t.points > 0 GROUP BY d.driverId;
-- gold
SELECT name FROM constructors WHERE constructorId IN (SELECT constructorId FROM results GROUP BY constructorId HAVING COUNT(DISTINCT driverId) > 3) AND nationality != 'British';
-- right
SELECT c.name FROM constructors c JOIN results r ON r.constructorId = c.constructorId WHERE NOT c.nationality = 'British' GROUP BY c.constructorId, c.name HAVING COUNT(DISTINCT r.driverId) >= 4;
-- wrong
SELECT name FROM constructors WHERE constructorId IN (SELECT constructorId FROM results GROUP BY constructorId HAVING COUNT(driverId) > 3) AND nationality != 'British';
SELECT name FROM constructors WHERE constructorId IN (SELECT constructorId FROM results GROUP BY constructorId HAVING COUNT(DISTINCT driverId) >= 3) AND nationality != 'British';
SELECT name FROM constructors WHERE constructorId IN (SELECT constructorId FROM results GROUP BY constructorId HAVING COUNT(DISTINCT raceId) > 3) AND nationality != 'British';
-- gold
SELECT raceId, MIN(time) FROM races WHERE time > '11:00:00' GROUP BY raceId;
-- right
SELECT raceId, time FROM races WHERE time > '11:00:00';
SELECT raceId, time FROM races WHERE strftime('%H', time) >= '11' AND time <> '11:00:00';
-- wrong
SELECT raceId, time FROM races WHERE time >= '11:30:01';
SELECT raceId, time FROM races WHERE time > '12:00:00';
SELECT raceId, time FROM races WHERE strftime('%H', time) > '11';
SELECT raceId, MIN(time) FROM races GROUP BY raceId;
-- gold
SELECT T2.surname, T1.q3 FROM qualifying AS T1 INNER JOIN drivers AS T2 ON T2.driverId = T1.driverId WHERE T1.raceId = 23 AND T1.position <= 10;
-- right
SELECT surname, q3 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23 AND position < 11;
SELECT (SELECT surname FROM drivers d WHERE d.driverId = q.driverId), q3 FROM qualifying q WHERE raceId = 23 AND NOT position > 10;
-- wrong
SELECT surname, q3 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23 AND position < 10;
SELECT surname, q3 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23;
SELECT surname, q1 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23 AND position <= 10;
SELECT surname, q3 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23 AND position <= 10 AND q3 IS NOT NULL;
SELECT surname, q3 FROM qualifying JOIN drivers USING (driverId) WHERE raceId = 23 ORDER BY position LIMIT 10;
-- gold
SELECT COUNT(*) FROM results WHERE milliseconds / 60000 > 100;
-- right
SELECT COUNT(*) FROM results WHERE milliseconds >= 101 * 60000;
SELECT COUNT(resultId) FROM results WHERE CAST(milliseconds / 60000 AS INTEGER) >= 101;
-- wrong
SELECT COUNT(*) FROM results WHERE milliseconds / 60000.0 > 100;
SELECT COUNT(*) FROM results WHERE milliseconds > 6000000;
SELECT COUNT(*) FROM results WHERE milliseconds / 60000 >= 100;
SELECT COUNT(*) FROM results WHERE milliseconds / 1000 > 100;
-- gold
SELECT surname, (CAST(STRFTIME('%Y', '2018-01-01') AS INTEGER) - CAST(STRFTIME('%Y', dob) AS INTEGER)) AS age FROM drivers WHERE nationality = 'Spanish' ORDER BY dob DESC LIMIT 5;
-- right
SELECT surname, 2018 - STRFTIME('%Y', dob) FROM drivers WHERE nationality = 'Spanish' ORDER BY dob DESC LIMIT 5;
SELECT surname, 2018 - SUBSTR(dob, 1, 4) FROM drivers WHERE nationality IN ('Spanish') ORDER BY dob DESC NULLS LAST LIMIT 0, 5;
-- wrong
SELECT surname, 2018 - STRFTIME('%Y', dob) FROM drivers WHERE nationality = 'Spanish' ORDER BY dob LIMIT 5;
SELECT surname, 2017 - STRFTIME('%Y', dob) FROM drivers WHERE nationality = 'Spanish' ORDER BY dob DESC LIMIT 5;
SELECT surname, 2018 - STRFTIME('%m', dob) FROM drivers WHERE nationality = 'Spanish' ORDER BY dob DESC LIMIT 5;
SELECT surname, 2018 - STRFTIME('%Y', dob) FROM drivers ORDER BY dob DESC LIMIT 5;
-- gold
SELECT a.surname, b.surname FROM drivers a JOIN drivers b ON a.nationality = b.nationality AND a.driverId < b.driverId WHERE a.nationality = 'Malaysian';
-- right
SELECT a.surname, b.surname FROM drivers a, drivers b WHERE a.nationality = 'Malaysian' AND b.nationality = 'Malaysian' AND b.driverId > a.driverId;
-- wrong
SELECT a.surname, b.surname FROM drivers a JOIN drivers b ON a.nationality = b.nationality AND a.driverId <> b.driverId WHERE a.nationality = 'Malaysian';
SELECT a.surname, b.surname FROM drivers a JOIN drivers b ON a.nationality = b.nationality AND a.driverId <= b.driverId WHERE a.nationality = 'Malaysian';
SELECT a.surname, b.surname FROM drivers a JOIN drivers b ON a.nationality = b.nationality AND a.surname < b.surname WHERE a.nationality = 'Malaysian';
SELECT b.surname, a.surname FROM drivers a JOIN drivers b ON a.nationality = b.nationality AND a.driverId < b.driverId WHERE a.nationality = 'Malaysian';
-- gold
SELECT COUNT(*) FROM races WHERE name LIKE '%Grand Prix' AND round IN (1, 2, 3) AND year NOT IN (2008, 2009);
-- right
SELECT COUNT(*) FROM races WHERE name LIKE '%Grand Prix' AND round <= 3 AND round >= 1 AND NOT (year = 2008 OR year = 2009);
SELECT SUM(year < 2008 OR year > 2009) FROM races WHERE name LIKE '%Grand Prix' AND round BETWEEN 1 AND 3 HAVING COUNT(*) > 0 UNION ALL SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM races WHERE name LIKE '%Grand Prix' AND round BETWEEN 1 AND 3);
-- wrong
SELECT COUNT(*) FROM races WHERE name LIKE '%Grand Prix' AND round < 3 AND year NOT IN (2008, 2009);
SELECT COUNT(*) FROM races WHERE name LIKE '%Grand Prix' AND round IN (1, 2, 3) AND year <> 2008;
SELECT COUNT(*) FROM races WHERE name LIKE '%Grand Prix' AND round IN (1, 3) AND year NOT IN (2008, 2009);
SELECT COUNT(*) FROM races WHERE round IN (1, 2, 3) AND year NOT IN (2008, 2009) AND name LIKE '%Grand Prix' AND time IS NOT NULL;
SELECT COUNT(DISTINCT name) FROM races WHERE name LIKE '%Grand Prix' AND round IN (1, 2, 3) AND year NOT IN (2008, 2009);
-- gold
SELECT DISTINCT c.country FROM circuits c WHERE c.alt > (SELECT AVG(alt) FROM circuits);
-- right
SELECT country FROM circuits WHERE alt > (SELECT SUM(alt) * 1.0 / COUNT(alt) FROM circuits) GROUP BY country;
WITH m AS (SELECT AVG(alt) AS a FROM circuits) SELECT DISTINCT country FROM circuits, m WHERE alt > a;
SELECT country FROM circuits WHERE alt > (SELECT AVG(alt) FROM circuits) INTERSECT SELECT country FROM circuits;
-- wrong
SELECT country FROM circuits WHERE alt > (SELECT AVG(alt) FROM circuits);
SELECT DISTINCT country FROM circuits WHERE alt >= (SELECT MAX(alt) / 2 FROM circuits);
SELECT country FROM circuits GROUP BY country HAVING AVG(alt) > (SELECT AVG(alt) FROM circuits);
SELECT DISTINCT country FROM circuits WHERE alt > (SELECT SUM(alt) / COUNT(*) FROM circuits);
SELECT DISTINCT country FROM circuits WHERE alt < (SELECT AVG(alt) FROM circuits);
SELECT DISTINCT c.country FROM circuits c WHERE c.alt > (SELECT AVG(o.alt) FROM circuits o WHERE o.country = c.country);
-- gold
SELECT strftime('%m', date), COUNT(*) FROM races GROUP BY strftime('%m', date) ORDER BY COUNT(*) DESC, strftime('%m', date) LIMIT 3;
-- right
SELECT SUBSTR(date, 6, 2) AS m, COUNT(*) AS n FROM races GROUP BY m ORDER BY n DESC, m LIMIT 3;
SELECT m, n FROM (SELECT SUBSTR(date, 6, 2) AS m, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, SUBSTR(date, 6, 2)) AS k FROM races GROUP BY 1) WHERE k <= 3 ORDER BY k;
-- wrong
SELECT strftime('%d', date), COUNT(*) FROM races GROUP BY strftime('%d', date) ORDER BY COUNT(*) DESC, strftime('%d', date) LIMIT 3;
SELECT strftime('%m', date), COUNT(*) FROM races GROUP BY strftime('%m', date) ORDER BY COUNT(*), strftime('%m', date) LIMIT 3;
SELECT CAST(strftime('%m', date) AS INTEGER), COUNT(*) FROM races GROUP BY 1 ORDER BY COUNT(*) DESC, 1 LIMIT 3;
SELECT strftime('%m', date), COUNT(*) FROM races GROUP BY strftime('%Y-%m', date) ORDER BY COUNT(*) DESC, strftime('%m', date) LIMIT 3;
SELECT strftime('%m', date), COUNT(*) FROM races GROUP BY strftime('%m', date) ORDER BY strftime('%m', date) LIMIT 3;
-- gold
SELECT SUM(points) FROM results WHERE driverId = 1 AND raceId IN (SELECT raceId FROM races WHERE year = 2009);
-- right
SELECT SUM(r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009 AND r.driverId = 1;
SELECT SUM(CASE WHEN a.year = 2009 THEN r.points END) FROM results r JOIN races a ON a.raceId = r.raceId WHERE r.driverId = 1;
-- wrong
SELECT TOTAL(r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009 AND r.driverId = 1;
SELECT COUNT(r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009 AND r.driverId = 1;
SELECT MAX(r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009 AND r.driverId = 1;
SELECT SUM(DISTINCT r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009 AND r.driverId = 1;
SELECT SUM(r.points) FROM results r JOIN races a ON a.raceId = r.raceId AND a.year = 2009;
