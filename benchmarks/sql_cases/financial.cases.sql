-- gold
SELECT COUNT(T2.account_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.district_id WHERE T1.A3 = 'Prague' AND T2.frequency = 'POPLATEK MESICNE';
-- right
SELECT COUNT(*) FROM account WHERE frequency = 'POPLATEK MESICNE' AND district_id IN (SELECT district_id FROM district WHERE A3 = 'Prague');
SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM account a JOIN district d USING (district_id) WHERE d.A3 = 'Prague' AND a.frequency = 'POPLATEK MESICNE');
-- wrong
SELECT COUNT(DISTINCT T1.district_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.district_id WHERE T1.A3 = 'Prague' AND T2.frequency = 'POPLATEK MESICNE';
SELECT COUNT(T2.account_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.district_id WHERE T1.A3 = 'Prague';
SELECT COUNT(T2.account_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.district_id WHERE T1.A2 = 'Prague' AND T2.frequency = 'POPLATEK MESICNE';
SELECT COUNT(T2.account_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.district_id WHERE T1.A3 = 'Prague' AND T2.frequency LIKE 'POPLATEK%';
SELECT COUNT(T2.account_id) FROM district AS T1 INNER JOIN account AS T2 ON T1.district_id = T2.account_id WHERE T1.A3 = 'Prague' AND T2.frequency = 'POPLATEK MESICNE';
-- gold
SELECT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id WHERE T2.gender = 'F' GROUP BY T1.district_id ORDER BY COUNT(T2.client_id) DESC, T1.district_id LIMIT 3;
-- right
SELECT d.A2 FROM district d ORDER BY (SELECT COUNT(*) FROM client c WHERE c.district_id = d.district_id AND c.gender = 'F') DESC, d.district_id LIMIT (SELECT MIN(3, COUNT(DISTINCT district_id)) FROM client WHERE gender = 'F');
SELECT A2 FROM (SELECT T1.A2, T1.district_id AS i, COUNT(*) AS n FROM district T1, client T2 WHERE T1.district_id = T2.district_id AND T2.gender <> 'M' GROUP BY T1.district_id) ORDER BY n DESC, i LIMIT 3;
-- wrong
SELECT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id GROUP BY T1.district_id ORDER BY COUNT(T2.client_id) DESC, T1.district_id LIMIT 3;
SELECT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id WHERE T2.gender = 'F' GROUP BY T1.district_id ORDER BY COUNT(T2.client_id), T1.district_id LIMIT 3;
SELECT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id WHERE T2.gender = 'F' GROUP BY T1.A2 ORDER BY COUNT(T2.client_id) DESC, T1.district_id LIMIT 3;
SELECT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id WHERE T2.gender = 'M' GROUP BY T1.district_id ORDER BY COUNT(T2.client_id) DESC, T1.district_id LIMIT 3;
SELECT DISTINCT T1.A2 FROM district AS T1 INNER JOIN client AS T2 ON T1.district_id = T2.district_id WHERE T2.gender = 'F' ORDER BY T1.A11 DESC LIMIT 3;
-- gold
SELECT CAST(SUM(status = 'A') AS REAL) * 100 / COUNT(*) FROM loan WHERE amount > 100000;
-- right
SELECT 100.0 * COUNT(CASE WHEN status = 'A' THEN 1 END) / COUNT(loan_id) FROM loan WHERE amount > 100000;
SELECT AVG(CASE status WHEN 'A' THEN 100.0 ELSE 0 END) FROM loan WHERE NOT amount <= 100000;
SELECT SUM(CASE WHEN status = 'A' THEN 1.0 ELSE 0.0 END) / COUNT(*) * 100 FROM loan WHERE amount >= 100001;
-- wrong
SELECT CAST(SUM(status = 'A') AS REAL) * 100 / COUNT(*) FROM loan WHERE amount >= 100000;
SELECT SUM(status = 'A') * 100 / COUNT(*) FROM loan WHERE amount > 100000;
SELECT CAST(SUM(status = 'A' AND amount > 100000) AS REAL) * 100 / COUNT(*) FROM loan;
SELECT CAST(SUM(status = 'A') AS REAL) / COUNT(*) FROM loan WHERE amount > 100000;
SELECT CAST(SUM(CASE WHEN status = 'A' THEN amount ELSE 0 END) AS REAL) * 100 / SUM(amount) FROM loan WHERE amount > 100000;
SELECT CAST(SUM(status = 'C') AS REAL) * 100 / COUNT(*) FROM loan WHERE amount > 100000;
-- gold
SELECT T1.loan_id, T2.A2, T2.A11 FROM loan AS T1 INNER JOIN account AS T3 ON T1.account_id = T3.account_id INNER JOIN district AS T2 ON T3.district_id = T2.district_id WHERE T1.duration = 60;
-- right
SELECT loan_id, A2, A11 FROM loan, account, district WHERE loan.account_id = account.account_id AND account.district_id = district.district_id AND duration > 48 AND duration <= 60 AND duration >= 60;
SELECT l.loan_id, (SELECT A2 FROM district d WHERE d.district_id = a.district_id), (SELECT A11 FROM district d WHERE d.district_id = a.district_id) FROM loan l JOIN account a ON a.account_id = l.account_id WHERE l.duration IN (60);
-- wrong
SELECT T1.loan_id, T2.A3, T2.A11 FROM loan AS T1 INNER JOIN account AS T3 ON T1.account_id = T3.account_id INNER JOIN district AS T2 ON T3.district_id = T2.district_id WHERE T1.duration = 60;
SELECT T1.loan_id, T2.A2, T2.A12 FROM loan AS T1 INNER JOIN account AS T3 ON T1.account_id = T3.account_id INNER JOIN district AS T2 ON T3.district_id = T2.district_id WHERE T1.duration = 60;
SELECT DISTINCT T3.account_id, T2.A2, T2.A11 FROM loan AS T1 INNER JOIN account AS T3 ON T1.account_id = T3.account_id INNER JOIN district AS T2 ON T3.district_id = T2.district_id WHERE T1.duration = 60;
SELECT T1.loan_id, T2.A2, T2.A11 FROM loan AS T1 INNER JOIN disp AS T4 ON T4.account_id = T1.account_id INNER JOIN account AS T3 ON T1.account_id = T3.account_id INNER JOIN district AS T2 ON T3.district_id = T2.district_id WHERE T1.duration = 60;
-- gold
SELECT COUNT(*) FROM account WHERE STRFTIME('%Y', date) > '1995' AND frequency = 'POPLATEK PO OBRATU';
-- right
SELECT COUNT(*) FROM account WHERE date >= '1996-01-01' AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(account_id) FROM account WHERE CAST(SUBSTR(date, 1, 4) AS INTEGER) >= 1996 AND frequency IN ('POPLATEK PO OBRATU');
SELECT COUNT(*) FROM account WHERE NOT date < '1996-01-01' AND frequency = 'POPLATEK PO OBRATU';
-- wrong
SELECT COUNT(*) FROM account WHERE date > '1995-01-01' AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(*) FROM account WHERE STRFTIME('%Y', date) >= '1995' AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(*) FROM account WHERE STRFTIME('%Y', date) = '1996' AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(*) FROM account WHERE STRFTIME('%Y', date) > 1995 AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(*) FROM account WHERE STRFTIME('%Y', date) < '1995' AND frequency = 'POPLATEK PO OBRATU';
SELECT COUNT(DISTINCT district_id) FROM account WHERE STRFTIME('%Y', date) > '1995' AND frequency = 'POPLATEK PO OBRATU';
-- gold
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER KARTOU' AND T1.amount > (SELECT AVG(amount) FROM trans);
-- right
SELECT client_id FROM disp WHERE type = 'OWNER' AND account_id IN (SELECT account_id FROM trans WHERE operation = 'VYBER KARTOU' AND amount > (SELECT SUM(amount) * 1.0 / COUNT(*) FROM trans)) GROUP BY client_id;
WITH m AS (SELECT AVG(amount) AS a FROM trans) SELECT DISTINCT d.client_id FROM disp d JOIN trans t ON t.account_id = d.account_id, m WHERE d.type <> 'DISPONENT' AND t.operation = 'VYBER KARTOU' AND t.amount > m.a;
-- wrong
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T1.operation = 'VYBER KARTOU' AND T1.amount > (SELECT AVG(amount) FROM trans);
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER KARTOU' AND T1.amount > (SELECT AVG(amount) FROM trans WHERE operation = 'VYBER KARTOU');
SELECT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER KARTOU' AND T1.amount > (SELECT AVG(amount) FROM trans);
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER' AND T1.amount > (SELECT AVG(amount) FROM trans);
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER KARTOU' GROUP BY T2.client_id HAVING SUM(T1.amount) > (SELECT AVG(amount) FROM trans);
SELECT DISTINCT T2.client_id FROM disp AS T2 INNER JOIN trans AS T1 ON T1.account_id = T2.account_id WHERE T2.type = 'OWNER' AND T1.operation = 'VYBER KARTOU' AND T1.balance > (SELECT AVG(balance) FROM trans);
-- gold
SELECT T1.A3, AVG(T1.A11) FROM district T1 GROUP BY T1.A3 HAVING AVG(T1.A11) >= 10000;
-- right
SELECT A3, a FROM (SELECT A3, SUM(A11) * 1.0 / COUNT(*) AS a FROM district GROUP BY A3) WHERE a >= 10000;
SELECT A3, AVG(A11) FROM district GROUP BY A3 HAVING SUM(A11) >= 10000 * COUNT(*);
-- wrong
SELECT A3, AVG(A11) FROM district GROUP BY A3 HAVING AVG(A11) > 10000;
SELECT A3, AVG(A11) FROM district WHERE A11 >= 10000 GROUP BY A3;
SELECT A3, SUM(A11) / COUNT(*) FROM district GROUP BY A3 HAVING AVG(A11) >= 10000;
SELECT A3, AVG(DISTINCT A11) FROM district GROUP BY A3 HAVING AVG(A11) >= 10000;
SELECT A3, AVG(A11) FROM district GROUP BY A3 HAVING MAX(A11) >= 10000;
SELECT A3, AVG(A11) FROM district GROUP BY A2 HAVING AVG(A11) >= 10000;
-- gold
SELECT account_id, SUM(amount) FROM trans WHERE type = 'PRIJEM' GROUP BY account_id HAVING SUM(amount) > 30000;
-- right
SELECT a.account_id, s FROM account a JOIN (SELECT account_id, SUM(amount) AS s FROM trans WHERE type = 'PRIJEM' GROUP BY account_id) t ON t.account_id = a.account_id WHERE s > 30000;
SELECT account_id, SUM(CASE WHEN type = 'PRIJEM' THEN amount ELSE 0 END) AS s FROM trans GROUP BY account_id HAVING s > 30000;
-- wrong
SELECT account_id, SUM(amount) FROM trans WHERE type = 'PRIJEM' GROUP BY account_id HAVING SUM(amount) >= 30000;
SELECT account_id, SUM(amount) FROM trans GROUP BY account_id HAVING SUM(amount) > 30000;
SELECT account_id, SUM(amount) FROM trans WHERE type = 'PRIJEM' AND amount > 30000 GROUP BY account_id;
SELECT account_id, SUM(amount) FROM trans WHERE type <> 'VYDAJ' GROUP BY account_id HAVING SUM(amount) > 30000;
SELECT account_id, SUM(balance) FROM trans WHERE type = 'PRIJEM' GROUP BY account_id HAVING SUM(balance) > 30000;
SELECT account_id, SUM(DISTINCT amount) FROM trans WHERE type = 'PRIJEM' GROUP BY account_id HAVING SUM(amount) > 30000;
-- gold
SELECT client_id, (strftime('%Y', '1999-01-01') - strftime('%Y', birth_date)) AS age FROM client WHERE gender = 'M' AND birth_date < '1950-01-01';
-- right
SELECT client_id, 1999 - CAST(SUBSTR(birth_date, 1, 4) AS INTEGER) FROM client WHERE gender = 'M' AND CAST(strftime('%Y', birth_date) AS INTEGER) < 1950;
SELECT client_id, 1999 - strftime('%Y', birth_date) FROM client WHERE gender != 'F' AND birth_date <= '1949-12-31';
-- wrong
SELECT client_id, 1998 - strftime('%Y', birth_date) FROM client WHERE gender = 'M' AND birth_date < '1950-01-01';
SELECT client_id, 1999 - strftime('%Y', birth_date) FROM client WHERE gender = 'M' AND birth_date < '1950';
SELECT client_id, 1999 - strftime('%Y', birth_date) FROM client WHERE birth_date < '1950-01-01';
SELECT client_id, CAST((julianday('1999-01-01') - julianday(birth_date)) / 365.25 AS INTEGER) FROM client WHERE gender = 'M' AND birth_date < '1950-01-01';
-- gold
SELECT T1.DisplayName FROM users AS T1 INNER JOIN posts AS T2 ON T1.Id = T2.OwnerUserId WHERE T2.Title = 'Eliciting priors from experts';
-- right
SELECT (SELECT DisplayName FROM users u WHERE u.Id = p.OwnerUserId) FROM posts p WHERE Title = 'Eliciting priors from experts' AND OwnerUserId IS NOT NULL;
SELECT DisplayName FROM posts p LEFT JOIN users u ON u.Id = p.OwnerUserId WHERE p.Title = 'Eliciting priors from experts' AND u.Id IS NOT NULL;
-- wrong
SELECT DISTINCT T1.DisplayName FROM users AS T1 INNER JOIN posts AS T2 ON T1.Id = T2.OwnerUserId WHERE T2.Title = 'Eliciting priors from experts';
SELECT T1.DisplayName FROM users AS T1 INNER JOIN posts AS T2 ON T1.Id = T2.ParentId WHERE T2.Title = 'Eliciting priors from experts';
SELECT DisplayName FROM users WHERE Id IN (SELECT OwnerUserId FROM posts WHERE Title = 'Eliciting priors from experts');
SELECT T1.DisplayName FROM users AS T1 INNER JOIN posts AS T2 ON T1.Id = T2.Id WHERE T2.Title = 'Eliciting priors from experts';
-- gold
SELECT COUNT(T1.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age > 40 AND T1.Score > 20;
-- right
SELECT COUNT(*) FROM posts WHERE Score >= 21 AND OwnerUserId IN (SELECT Id FROM users WHERE Age >= 41);
SELECT SUM(CASE WHEN p.Score > 20 THEN 1 ELSE 0 END) FROM (SELECT 0 AS Score, NULL AS o UNION ALL SELECT p.Score, p.OwnerUserId FROM posts p JOIN users u ON u.Id = p.OwnerUserId AND u.Age > 40) p;
-- wrong
SELECT COUNT(T1.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age >= 40 AND T1.Score > 20;
SELECT COUNT(T1.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age > 40 AND T1.Score >= 20;
SELECT COUNT(DISTINCT T2.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age > 40 AND T1.Score > 20;
SELECT COUNT(T1.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age > 40 OR T1.Score > 20;
SELECT COUNT(T1.Id) FROM posts AS T1 LEFT JOIN users AS T2 ON T1.OwnerUserId = T2.Id AND T2.Age > 40 WHERE T1.Score > 20;
SELECT COUNT(T1.Id) FROM posts AS T1 INNER JOIN users AS T2 ON T1.OwnerUserId = T2.Id WHERE T2.Age > 40 AND T1.ViewCount > 20;
-- gold
SELECT DisplayName FROM users WHERE Reputation = (SELECT MAX(Reputation) FROM users);
-- right
SELECT DisplayName FROM users WHERE Reputation >= (SELECT Reputation FROM users ORDER BY Reputation DESC LIMIT 1);
SELECT DisplayName FROM users u WHERE NOT EXISTS (SELECT 1 FROM users v WHERE v.Reputation > u.Reputation);
SELECT DisplayName FROM (SELECT DisplayName, RANK() OVER (ORDER BY Reputation DESC) AS r FROM users) WHERE r = 1;
-- wrong
SELECT DisplayName FROM users ORDER BY Reputation DESC LIMIT 1;
SELECT DisplayName, MAX(Reputation) FROM users;
SELECT DisplayName FROM users ORDER BY Reputation LIMIT 1;
SELECT DisplayName FROM users WHERE UpVotes = (SELECT MAX(UpVotes) FROM users);
SELECT DisplayName FROM (SELECT DisplayName, ROW_NUMBER() OVER (ORDER BY Reputation DESC) AS r FROM users) WHERE r = 1;
-- gold
SELECT T.OwnerUserId, COUNT(*) FROM posts T WHERE T.PostTypeId = 1 AND T.OwnerUserId IS NOT NULL GROUP BY T.OwnerUserId ORDER BY COUNT(*) DESC, T.OwnerUserId LIMIT 5;
-- right
SELECT u.Id, COUNT(p.Id) FROM users u JOIN posts p ON p.OwnerUserId = u.Id AND p.PostTypeId = 1 GROUP BY u.Id ORDER BY 2 DESC, 1 LIMIT 5;
-- wrong
SELECT T.OwnerUserId, COUNT(*) FROM posts T WHERE T.OwnerUserId IS NOT NULL GROUP BY T.OwnerUserId ORDER BY COUNT(*) DESC, T.OwnerUserId LIMIT 5;
SELECT T.OwnerUserId, COUNT(*) FROM posts T WHERE T.PostTypeId = 2 AND T.OwnerUserId IS NOT NULL GROUP BY T.OwnerUserId ORDER BY COUNT(*) DESC, T.OwnerUserId LIMIT 5;
SELECT T.OwnerUserId, COUNT(*) FROM posts T WHERE T.PostTypeId = 1 AND T.OwnerUserId IS NOT NULL GROUP BY T.OwnerUserId ORDER BY COUNT(*) DESC, T.OwnerUserId DESC LIMIT 5;
SELECT T.OwnerUserId, SUM(T.Score) FROM posts T WHERE T.PostTypeId = 1 AND T.OwnerUserId IS NOT NULL GROUP BY T.OwnerUserId ORDER BY SUM(T.Score) DESC, T.OwnerUserId LIMIT 5;
SELECT T.OwnerUserId, COUNT(*) FROM posts T WHERE T.PostTypeId = 1 GROUP BY T.OwnerUserId ORDER BY COUNT(*) DESC, T.OwnerUserId LIMIT 5;
-- gold
SELECT COUNT(*) FROM posts a WHERE a.PostTypeId = 1 AND NOT EXISTS (SELECT 1 FROM posts b WHERE b.ParentId = a.Id);
-- right
SELECT COUNT(*) FROM posts WHERE PostTypeId = 1 AND Id NOT IN (SELECT ParentId FROM posts WHERE ParentId IS NOT NULL);
SELECT COUNT(*) FROM posts a LEFT JOIN posts b ON b.ParentId = a.Id WHERE a.PostTypeId = 1 AND b.Id IS NULL;
-- wrong
SELECT COUNT(*) FROM posts WHERE PostTypeId = 1 AND ParentId IS NULL;
SELECT COUNT(*) FROM posts WHERE Id NOT IN (SELECT ParentId FROM posts WHERE ParentId IS NOT NULL);
SELECT COUNT(*) FROM posts a WHERE a.PostTypeId = 1 AND EXISTS (SELECT 1 FROM posts b WHERE b.ParentId = a.Id);
SELECT COUNT(*) FROM posts a LEFT JOIN posts b ON b.ParentId = a.Id WHERE b.PostTypeId = 1 AND a.Id IS NULL;
-- gold
SELECT Title FROM posts WHERE Title LIKE '%priors%' AND ViewCount BETWEEN 1000 AND 2000;
-- right
SELECT Title FROM posts WHERE INSTR(LOWER(Title), 'priors') > 0 AND ViewCount >= 1000 AND ViewCount <= 2000;
SELECT Title FROM posts WHERE Title LIKE '%priors%' AND NOT (ViewCount < 1000 OR ViewCount > 2000);
-- wrong
SELECT Title FROM posts WHERE Title LIKE '%priors%' AND ViewCount > 1000 AND ViewCount < 2000;
SELECT Title FROM posts WHERE Title LIKE '%priors%' AND ViewCount > 1000 AND ViewCount <= 2000;
SELECT Title FROM posts WHERE Title LIKE '%priors%' OR ViewCount BETWEEN 1000 AND 2000;
SELECT Title FROM posts WHERE Body LIKE '%priors%' AND ViewCount BETWEEN 1000 AND 2000;
SELECT Title FROM posts WHERE Title LIKE '%priors%' AND ViewCount BETWEEN 2000 AND 1000;
-- gold
SELECT CAST(COUNT(p.Id) AS REAL) / COUNT(DISTINCT u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100;
-- right
SELECT (SELECT COUNT(*) FROM posts WHERE OwnerUserId IN (SELECT Id FROM users WHERE UpVotes > 100)) * 1.0 / (SELECT COUNT(*) FROM users WHERE UpVotes > 100);
SELECT AVG(n) FROM (SELECT u.Id, COUNT(p.Id) AS n FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100 GROUP BY u.Id);
-- wrong
SELECT CAST(COUNT(p.Id) AS REAL) / COUNT(DISTINCT u.Id) FROM users u JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100;
SELECT CAST(COUNT(*) AS REAL) / COUNT(DISTINCT u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100;
SELECT COUNT(p.Id) / COUNT(DISTINCT u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100;
SELECT CAST(COUNT(p.Id) AS REAL) / COUNT(u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes > 100;
SELECT CAST(COUNT(p.Id) AS REAL) / COUNT(DISTINCT u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id WHERE u.UpVotes >= 100;
SELECT CAST(COUNT(p.Id) AS REAL) / COUNT(DISTINCT u.Id) FROM users u LEFT JOIN posts p ON p.OwnerUserId = u.Id AND u.UpVotes > 100;
-- gold
SELECT DisplayName FROM users WHERE DATE(CreationDate) = '2011-05-04' OR CreationDate >= '2014-09-01';
-- right
SELECT DisplayName FROM users WHERE CreationDate LIKE '2011-05-04%' OR STRFTIME('%Y-%m', CreationDate) >= '2014-09';
SELECT DisplayName FROM users WHERE SUBSTR(CreationDate, 1, 10) = '2011-05-04' OR DATE(CreationDate) >= '2014-09-01';
-- wrong
SELECT DisplayName FROM users WHERE CreationDate = '2011-05-04' OR CreationDate >= '2014-09-01';
SELECT DisplayName FROM users WHERE DATE(CreationDate) >= '2011-05-04';
SELECT DisplayName FROM users WHERE DATE(CreationDate) = '2011-05-04' OR CreationDate >= '2014-10-01';
SELECT DisplayName FROM users WHERE DATE(CreationDate) = '2011-05-04' AND CreationDate >= '2014-09-01';
SELECT DisplayName FROM users WHERE DATE(CreationDate) = '2011-05-04' OR DATE(CreationDate) > '2014-09-01';
-- gold
SELECT A3, COUNT(*) FROM district WHERE A12 IS NOT NULL GROUP BY A3 ORDER BY COUNT(*) DESC, A3;
-- right
SELECT A3, COUNT(A12) FROM district GROUP BY A3 HAVING COUNT(A12) > 0 ORDER BY 2 DESC, 1;
-- wrong
SELECT A3, COUNT(A12) FROM district GROUP BY A3 ORDER BY COUNT(A12) DESC, A3;
SELECT A3, COUNT(*) FROM district GROUP BY A3 ORDER BY COUNT(*) DESC, A3;
SELECT A3, COUNT(*) FROM district WHERE A12 IS NOT NULL GROUP BY A3 ORDER BY A3;
SELECT A3, COUNT(DISTINCT A12) FROM district WHERE A12 IS NOT NULL GROUP BY A3 ORDER BY COUNT(*) DESC, A3;
SELECT A3, COUNT(*) FROM district WHERE A12 > 0.5 GROUP BY A3 ORDER BY COUNT(*) DESC, A3;
-- gold
SELECT status, MIN(amount), MAX(amount) FROM loan WHERE duration IN (12, 24) GROUP BY status;
-- right
SELECT DISTINCT status, MIN(amount) OVER (PARTITION BY status), MAX(amount) OVER (PARTITION BY status) FROM loan WHERE duration = 12 OR duration = 24;
-- wrong
SELECT status, MIN(amount), MAX(amount) FROM loan WHERE duration BETWEEN 13 AND 24 GROUP BY status;
SELECT status, MIN(amount), MAX(amount) FROM loan WHERE duration <= 36 GROUP BY status;
SELECT status, MAX(amount), MIN(amount) FROM loan WHERE duration IN (12, 24) GROUP BY status;
SELECT status, MIN(payments), MAX(payments) FROM loan WHERE duration IN (12, 24) GROUP BY status;
SELECT status, MIN(amount), MAX(amount) FROM loan WHERE duration IN (12, 24) GROUP BY status, duration;
SELECT status, MIN(amount), MAX(amount) FROM loan GROUP BY status;
-- gold
SELECT (SELECT SUM(amount) FROM loan WHERE status = 'D') - (SELECT SUM(amount) FROM loan WHERE status = 'B');
-- right
SELECT SUM(CASE WHEN status = 'D' THEN amount END) - SUM(CASE WHEN status = 'B' THEN amount END) FROM loan;
-- wrong
SELECT SUM(CASE WHEN status = 'D' THEN amount ELSE 0 END) - SUM(CASE WHEN status = 'B' THEN amount ELSE 0 END) FROM loan;
SELECT SUM(CASE WHEN status = 'B' THEN amount END) - SUM(CASE WHEN status = 'D' THEN amount END) FROM loan;
SELECT SUM(CASE WHEN status = 'D' THEN amount END) - SUM(CASE WHEN status = 'A' THEN amount END) FROM loan;
SELECT COUNT(CASE WHEN status = 'D' THEN amount END) - COUNT(CASE WHEN status = 'B' THEN amount END) FROM loan;
SELECT ABS(SUM(CASE WHEN status = 'D' THEN amount END) - SUM(CASE WHEN status = 'B' THEN amount END)) FROM loan;
-- gold
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id WHERE l.date > a.date GROUP BY a.account_id HAVING COUNT(DISTINCT l.status) = 2;
-- right
SELECT account_id FROM (SELECT DISTINCT a.account_id, l.status FROM account a, loan l WHERE l.account_id = a.account_id AND a.date < l.date) GROUP BY account_id HAVING COUNT(*) = 2;
-- wrong
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id WHERE l.date > a.date GROUP BY a.account_id HAVING COUNT(l.status) = 2;
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id GROUP BY a.account_id HAVING COUNT(DISTINCT l.status) = 2;
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id WHERE l.date >= a.date GROUP BY a.account_id HAVING COUNT(DISTINCT l.status) = 2;
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id WHERE l.date > a.date GROUP BY a.account_id HAVING COUNT(DISTINCT l.status) >= 2;
SELECT a.account_id FROM account a JOIN loan l ON l.account_id = a.account_id WHERE l.date > a.date GROUP BY a.account_id HAVING COUNT(DISTINCT l.duration) = 2;
-- gold
SELECT c.client_id FROM client c WHERE c.client_id IN (SELECT client_id FROM disp WHERE type = 'OWNER') AND c.client_id NOT IN (SELECT client_id FROM disp WHERE type = 'DISPONENT');
-- right
SELECT client_id FROM disp GROUP BY client_id HAVING MIN(type) = 'OWNER';
SELECT client_id FROM disp WHERE type = 'OWNER' EXCEPT SELECT client_id FROM disp WHERE type = 'DISPONENT';
-- wrong
SELECT DISTINCT client_id FROM disp WHERE type = 'OWNER';
SELECT client_id FROM disp WHERE type = 'OWNER' AND type <> 'DISPONENT';
SELECT client_id FROM client WHERE client_id NOT IN (SELECT client_id FROM disp WHERE type = 'DISPONENT');
SELECT client_id FROM disp GROUP BY client_id HAVING MAX(type) = 'OWNER';
SELECT client_id FROM disp WHERE type = 'OWNER' INTERSECT SELECT client_id FROM disp WHERE type = 'DISPONENT';
SELECT client_id FROM disp GROUP BY client_id HAVING COUNT(*) = 1 AND MIN(type) = 'OWNER';
-- gold
SELECT ROUND(AVG(payments), 2) FROM loan WHERE date LIKE '1997%';
-- right
SELECT ROUND(SUM(payments) / COUNT(*), 2) FROM loan WHERE STRFTIME('%Y', date) = '1997';
SELECT ROUND(AVG(payments), 2) FROM loan WHERE date BETWEEN '1997-01-01' AND '1997-12-31';
-- wrong
SELECT ROUND(AVG(payments), 1) FROM loan WHERE date LIKE '1997%';
SELECT AVG(payments) FROM loan WHERE date LIKE '1997%';
SELECT ROUND(AVG(payments)) FROM loan WHERE date LIKE '1997%';
SELECT ROUND(AVG(payments), 2) FROM loan WHERE date BETWEEN '1997-01-01' AND '1997-12-30';
SELECT ROUND(AVG(payments), 2) FROM loan WHERE date > '1997-01-01' AND date < '1998-01-01';
SELECT ROUND(AVG(amount), 2) FROM loan WHERE date LIKE '1997%';
SELECT ROUND(AVG(payments), 2) FROM loan WHERE date LIKE '%1997%' OR date LIKE '1996%';
