-- gold
SELECT FirstName, LastName FROM Customer WHERE Country = 'USA';
-- right
SELECT FirstName, LastName FROM (SELECT * FROM Customer) AS c WHERE c.Country IN ('USA');
SELECT c.FirstName, c.LastName FROM Customer c WHERE CASE WHEN c.Country = 'USA' THEN 1 ELSE 0 END = 1;
-- wrong
SELECT LastName, FirstName FROM Customer WHERE Country = 'USA';
SELECT DISTINCT FirstName, LastName FROM Customer WHERE Country = 'USA';
SELECT FirstName, LastName FROM Customer WHERE LOWER(Country) = 'USA';
SELECT DISTINCT c.FirstName, c.LastName FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId WHERE i.BillingCountry = 'USA';
SELECT FirstName, LastName FROM Customer WHERE Country <> 'USA' OR Country IS NULL;
SELECT FirstName || ' ' || LastName FROM Customer WHERE Country = 'USA';
-- gold
SELECT COUNT(*) FROM Track WHERE Milliseconds > 300000;
-- right
SELECT COUNT(TrackId) FROM Track WHERE Milliseconds >= 300001;
SELECT SUM(CASE WHEN Milliseconds > 300000 THEN 1 ELSE 0 END) FROM Track HAVING COUNT(*) > 0 UNION ALL SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM Track);
SELECT (SELECT COUNT(*) FROM Track) - (SELECT COUNT(*) FROM Track WHERE Milliseconds <= 300000);
-- wrong
SELECT COUNT(*) FROM Track WHERE Milliseconds >= 300000;
SELECT COUNT(*) FROM Track WHERE Milliseconds > 300001;
SELECT COUNT(DISTINCT Name) FROM Track WHERE Milliseconds > 300000;
SELECT COUNT(Composer) FROM Track WHERE Milliseconds > 300000;
SELECT COUNT(*) FROM Track t JOIN Album a ON t.AlbumId = a.AlbumId WHERE t.Milliseconds > 300000;
SELECT COUNT(*) FROM Track WHERE Milliseconds / 60000 >= 5;
-- gold
SELECT ar.Name, COUNT(al.AlbumId) FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId GROUP BY ar.ArtistId, ar.Name;
-- right
SELECT Name, (SELECT COUNT(*) FROM Album WHERE Album.ArtistId = Artist.ArtistId) FROM Artist WHERE ArtistId IN (SELECT ArtistId FROM Album);
WITH n AS (SELECT ArtistId, COUNT(*) AS c FROM Album GROUP BY ArtistId) SELECT a.Name, n.c FROM n JOIN Artist a USING (ArtistId);
SELECT ar.Name, SUM(1) FROM Album al, Artist ar WHERE al.ArtistId = ar.ArtistId GROUP BY al.ArtistId;
-- wrong
SELECT ar.Name, COUNT(al.AlbumId) FROM Artist ar LEFT JOIN Album al ON ar.ArtistId = al.ArtistId GROUP BY ar.ArtistId, ar.Name;
SELECT ar.Name, COUNT(al.AlbumId) FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId GROUP BY ar.Name;
SELECT ar.Name, COUNT(al.AlbumId) FROM Artist ar JOIN Album al ON ar.ArtistId = al.AlbumId GROUP BY ar.ArtistId, ar.Name;
SELECT ar.Name, COUNT(DISTINCT al.Title) FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId GROUP BY ar.ArtistId, ar.Name;
SELECT ar.Name, COUNT(t.TrackId) FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON t.AlbumId = al.AlbumId GROUP BY ar.ArtistId, ar.Name;
-- gold
SELECT DISTINCT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name = 'Rock';
-- right
SELECT DISTINCT Name FROM Artist WHERE ArtistId IN (SELECT ArtistId FROM Album WHERE AlbumId IN (SELECT AlbumId FROM Track WHERE GenreId IN (SELECT GenreId FROM Genre WHERE Name = 'Rock')));
SELECT ar.Name FROM Artist ar WHERE EXISTS (SELECT 1 FROM Album al JOIN Track t USING (AlbumId) JOIN Genre g USING (GenreId) WHERE al.ArtistId = ar.ArtistId AND g.Name = 'Rock') GROUP BY ar.Name;
-- wrong
SELECT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name = 'Rock';
SELECT DISTINCT al.Title FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name = 'Rock';
SELECT DISTINCT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name = 'rock';
SELECT DISTINCT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.TrackId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name = 'Rock';
SELECT DISTINCT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.MediaTypeId = g.GenreId WHERE g.Name = 'Rock';
SELECT DISTINCT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId JOIN Track t ON al.AlbumId = t.AlbumId JOIN Genre g ON t.GenreId = g.GenreId WHERE g.Name LIKE '%o%k%';
-- gold
SELECT Name FROM Track ORDER BY Milliseconds DESC LIMIT 1;
-- right
SELECT Name FROM Track WHERE Milliseconds = (SELECT MAX(Milliseconds) FROM Track) ORDER BY TrackId LIMIT 1;
SELECT Name FROM Track WHERE Milliseconds = (SELECT MAX(Milliseconds) FROM Track);
SELECT t.Name FROM Track t WHERE NOT EXISTS (SELECT 1 FROM Track u WHERE u.Milliseconds > t.Milliseconds) LIMIT 1;
SELECT Name FROM (SELECT Name, ROW_NUMBER() OVER (ORDER BY Milliseconds DESC) AS r FROM Track) WHERE r = 1;
-- wrong
SELECT Name FROM Track ORDER BY Milliseconds LIMIT 1;
SELECT Name FROM Track ORDER BY Bytes DESC LIMIT 1;
SELECT Name FROM Track ORDER BY Milliseconds DESC LIMIT 2;
SELECT Name FROM Track ORDER BY Milliseconds DESC LIMIT 1 OFFSET 1;
SELECT Name FROM Track ORDER BY CAST(Milliseconds AS TEXT) DESC LIMIT 1;
SELECT Name FROM Track WHERE Milliseconds = (SELECT MIN(Milliseconds) FROM Track);
SELECT Name FROM Track WHERE AlbumId IS NOT NULL ORDER BY Milliseconds DESC LIMIT 1;
-- gold
SELECT c.Country, SUM(i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.Country ORDER BY SUM(i.Total) DESC LIMIT 3;
-- right
WITH s AS (SELECT Country, Total FROM Invoice i JOIN Customer c USING (CustomerId)) SELECT Country, SUM(Total) AS t FROM s GROUP BY Country ORDER BY t DESC LIMIT 3;
SELECT Country, t FROM (SELECT Country, SUM(Total) AS t FROM Invoice NATURAL JOIN Customer GROUP BY 1) ORDER BY 2 DESC LIMIT 3;
-- wrong
SELECT c.Country, SUM(i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.Country ORDER BY SUM(i.Total) LIMIT 3;
SELECT i.BillingCountry, SUM(i.Total) FROM Invoice i GROUP BY i.BillingCountry ORDER BY SUM(i.Total) DESC LIMIT 3;
SELECT c.Country, SUM(i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.Country ORDER BY COUNT(*) DESC LIMIT 3;
SELECT c.Country, SUM(i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.Country ORDER BY SUM(i.Total) DESC LIMIT 4;
SELECT c.Country, SUM(DISTINCT i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.Country ORDER BY SUM(i.Total) DESC LIMIT 3;
SELECT c.Country, SUM(i.Total) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId WHERE c.Country IS NOT NULL GROUP BY c.Country ORDER BY SUM(i.Total) DESC LIMIT 3;
-- gold
SELECT AVG(Total) FROM Invoice WHERE BillingCountry = 'Germany';
-- right
SELECT SUM(Total) * 1.0 / COUNT(Total) FROM Invoice WHERE BillingCountry = 'Germany';
SELECT AVG(CASE WHEN BillingCountry = 'Germany' THEN Total END) FROM Invoice;
SELECT TOTAL(Total) / NULLIF(COUNT(*), 0) FROM Invoice WHERE BillingCountry IN ('Germany');
-- wrong
SELECT AVG(DISTINCT Total) FROM Invoice WHERE BillingCountry = 'Germany';
SELECT ROUND(AVG(Total), 2) FROM Invoice WHERE BillingCountry = 'Germany';
SELECT SUM(Total) / (SELECT COUNT(*) FROM Invoice) FROM Invoice WHERE BillingCountry = 'Germany';
SELECT AVG(Total) FROM Invoice WHERE BillingCountry = 'germany';
SELECT AVG(i.Total) FROM Invoice i JOIN Customer c ON i.CustomerId = c.CustomerId WHERE c.Country = 'Germany';
SELECT AVG(Total) * 1.000001 FROM Invoice WHERE BillingCountry = 'Germany';
SELECT AVG(CASE WHEN BillingCountry = 'Germany' THEN Total ELSE 0 END) FROM Invoice;
SELECT COALESCE(AVG(Total), 0) FROM Invoice WHERE BillingCountry = 'Germany';
-- gold
SELECT InvoiceId, julianday(InvoiceDate) FROM Invoice WHERE Total > 20;
-- right
SELECT i.InvoiceId, julianday(date(i.InvoiceDate)) FROM Invoice i WHERE NOT i.Total <= 20;
SELECT InvoiceId, julianday(InvoiceDate) FROM Invoice WHERE 20 < Total;
-- wrong
SELECT InvoiceId, julianday(InvoiceDate, '+2 days') FROM Invoice WHERE Total > 20;
SELECT InvoiceId, julianday(InvoiceDate) + 1 FROM Invoice WHERE Total > 20;
SELECT InvoiceId, CAST(julianday(InvoiceDate) AS INTEGER) FROM Invoice WHERE Total > 20;
SELECT InvoiceId, julianday(InvoiceDate, '+1 hour') FROM Invoice WHERE Total > 20;
SELECT InvoiceId, ROUND(julianday(InvoiceDate)) FROM Invoice WHERE Total > 20;
SELECT InvoiceId, julianday(InvoiceDate) FROM Invoice WHERE Total >= 20;
-- gold
SELECT strftime('%Y', InvoiceDate), ROUND(SUM(Total), 2) FROM Invoice GROUP BY strftime('%Y', InvoiceDate) ORDER BY strftime('%Y', InvoiceDate);
-- right
SELECT substr(InvoiceDate, 1, 4), ROUND(SUM(Total), 2) FROM Invoice GROUP BY 1 ORDER BY 1;
WITH y AS (SELECT strftime('%Y', InvoiceDate) AS yr, Total FROM Invoice) SELECT yr, ROUND(SUM(Total), 2) FROM y GROUP BY yr ORDER BY yr ASC;
-- wrong
SELECT strftime('%Y', InvoiceDate) AS year, ROUND(SUM(Total), 2) FROM Invoice GROUP BY year ORDER BY year DESC;
SELECT strftime('%Y', InvoiceDate) AS year, ROUND(AVG(Total), 2) FROM Invoice GROUP BY year ORDER BY year;
SELECT strftime('%m', InvoiceDate) AS year, ROUND(SUM(Total), 2) FROM Invoice GROUP BY year ORDER BY year;
SELECT strftime('%Y', InvoiceDate) AS year, ROUND(SUM(Total), 0) FROM Invoice GROUP BY year ORDER BY year;
SELECT strftime('%Y', InvoiceDate) AS year, ROUND(SUM(Total), 2) FROM Invoice WHERE BillingCountry IS NOT NULL GROUP BY year ORDER BY year;
SELECT CAST(strftime('%Y', InvoiceDate) AS INTEGER) AS year, ROUND(SUM(Total), 2) FROM Invoice GROUP BY year ORDER BY year;
-- gold
SELECT Name FROM Artist WHERE ArtistId NOT IN (SELECT ArtistId FROM Album);
-- right
SELECT ar.Name FROM Artist ar LEFT JOIN Album al ON al.ArtistId = ar.ArtistId WHERE al.AlbumId IS NULL;
SELECT Name FROM Artist a WHERE NOT EXISTS (SELECT * FROM Album b WHERE b.ArtistId = a.ArtistId);
SELECT Name FROM Artist JOIN (SELECT ArtistId FROM Artist EXCEPT SELECT ArtistId FROM Album) USING (ArtistId);
-- wrong
SELECT Name FROM Artist WHERE ArtistId NOT IN (SELECT AlbumId FROM Album);
SELECT Name FROM Artist WHERE ArtistId IN (SELECT ArtistId FROM Album);
SELECT Name FROM Artist EXCEPT SELECT ar.Name FROM Artist ar JOIN Album al ON ar.ArtistId = al.ArtistId;
SELECT DISTINCT Name FROM Artist WHERE ArtistId NOT IN (SELECT ArtistId FROM Album);
SELECT Name FROM Artist WHERE Name IS NOT NULL AND ArtistId NOT IN (SELECT ArtistId FROM Album);
SELECT ar.Name FROM Artist ar LEFT JOIN Album al ON al.ArtistId = ar.ArtistId AND al.AlbumId IS NULL;
-- gold
SELECT g.Name, AVG(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(*) >= 5;
-- right
SELECT (SELECT Name FROM Genre WHERE GenreId = t.GenreId), SUM(t.Milliseconds) / 1000.0 / COUNT(*) FROM Track t WHERE t.GenreId IS NOT NULL GROUP BY t.GenreId HAVING COUNT(*) > 4;
SELECT Name, m FROM (SELECT g.GenreId, g.Name, AVG(t.Milliseconds / 1000.0) AS m, COUNT(t.TrackId) AS n FROM Track t JOIN Genre g USING (GenreId) GROUP BY 1, 2) WHERE n >= 5;
-- wrong
SELECT g.Name, AVG(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(*) > 5;
SELECT g.Name, AVG(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.Name HAVING COUNT(*) >= 5;
SELECT g.Name, AVG(t.Milliseconds / 1000) FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(*) >= 5;
SELECT g.Name, AVG(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(t.Composer) >= 5;
SELECT g.Name, AVG(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId;
SELECT g.Name, AVG(t.Milliseconds) / 1024.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(*) >= 5;
SELECT g.Name, MAX(t.Milliseconds) / 1000.0 FROM Genre g JOIN Track t ON g.GenreId = t.GenreId GROUP BY g.GenreId HAVING COUNT(*) >= 5;
-- gold
SELECT COUNT(DISTINCT Country) FROM Customer;
-- right
SELECT COUNT(*) FROM (SELECT Country FROM Customer WHERE Country IS NOT NULL GROUP BY Country);
SELECT COUNT(*) FROM (SELECT DISTINCT Country AS c FROM Customer) WHERE c IS NOT NULL;
-- wrong
SELECT COUNT(Country) FROM Customer;
SELECT COUNT(*) FROM (SELECT DISTINCT Country FROM Customer);
SELECT COUNT(DISTINCT City) FROM Customer;
SELECT COUNT(DISTINCT BillingCountry) FROM Invoice;
SELECT COUNT(DISTINCT UPPER(substr(Country, 1, 1))) FROM Customer;
SELECT DISTINCT COUNT(Country) FROM Customer GROUP BY Country;
-- gold
SELECT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e LEFT JOIN Employee m ON e.ReportsTo = m.EmployeeId;
-- right
SELECT e.FirstName, e.LastName, (SELECT FirstName FROM Employee WHERE EmployeeId = e.ReportsTo), (SELECT LastName FROM Employee WHERE EmployeeId = e.ReportsTo) FROM Employee e;
SELECT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e JOIN Employee m ON e.ReportsTo = m.EmployeeId UNION ALL SELECT FirstName, LastName, NULL, NULL FROM Employee WHERE ReportsTo IS NULL;
-- wrong
SELECT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e JOIN Employee m ON e.ReportsTo = m.EmployeeId;
SELECT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e LEFT JOIN Employee m ON e.EmployeeId = m.ReportsTo;
SELECT m.FirstName, m.LastName, e.FirstName, e.LastName FROM Employee e LEFT JOIN Employee m ON e.ReportsTo = m.EmployeeId;
SELECT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e RIGHT JOIN Employee m ON e.ReportsTo = m.EmployeeId;
SELECT e.FirstName, e.LastName, COALESCE(m.FirstName, ''), COALESCE(m.LastName, '') FROM Employee e LEFT JOIN Employee m ON e.ReportsTo = m.EmployeeId;
SELECT DISTINCT e.FirstName, e.LastName, m.FirstName, m.LastName FROM Employee e LEFT JOIN Employee m ON e.ReportsTo = m.EmployeeId;
-- gold
SELECT Name FROM Track WHERE Name LIKE '%love%';
-- right
SELECT Name FROM Track WHERE LOWER(Name) LIKE '%love%';
SELECT Name FROM Track WHERE instr(LOWER(Name), 'love') > 0;
SELECT t.Name FROM Track t WHERE UPPER(t.Name) LIKE '%LOVE%';
-- wrong
SELECT Name FROM Track WHERE Name LIKE 'love%';
SELECT Name FROM Track WHERE Name LIKE '%love';
SELECT Name FROM Track WHERE Name LIKE '% love %';
SELECT Name FROM Track WHERE instr(Name, 'love') > 0;
SELECT Name FROM Track WHERE Name GLOB '*Love*';
SELECT DISTINCT Name FROM Track WHERE Name LIKE '%love%';
SELECT Name FROM Track WHERE Name = 'love';
-- gold
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.TrackId GROUP BY t.TrackId ORDER BY SUM(il.Quantity) DESC LIMIT 1;
-- right
WITH q AS (SELECT TrackId, SUM(Quantity) AS s FROM InvoiceLine GROUP BY TrackId) SELECT t.Name FROM q JOIN Track t USING (TrackId) WHERE q.s = (SELECT MAX(s) FROM q);
SELECT Name FROM Track WHERE TrackId = (SELECT TrackId FROM InvoiceLine GROUP BY TrackId ORDER BY SUM(Quantity) DESC LIMIT 1);
-- wrong
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.TrackId GROUP BY t.TrackId ORDER BY COUNT(*) DESC LIMIT 1;
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.TrackId GROUP BY t.Name ORDER BY SUM(il.Quantity) DESC LIMIT 1;
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.TrackId GROUP BY t.TrackId ORDER BY SUM(il.Quantity) ASC LIMIT 1;
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.TrackId ORDER BY il.Quantity DESC LIMIT 1;
SELECT t.Name FROM Track t JOIN InvoiceLine il ON t.TrackId = il.InvoiceLineId GROUP BY t.TrackId ORDER BY SUM(il.Quantity) DESC LIMIT 1;
SELECT t.Name FROM Track t JOIN PlaylistTrack p ON t.TrackId = p.TrackId GROUP BY t.TrackId ORDER BY COUNT(*) DESC LIMIT 1;
-- gold
SELECT CAST(COUNT(CASE WHEN m.Name = 'AAC audio file' THEN 1 END) AS REAL) * 100 / COUNT(*) FROM Track t JOIN MediaType m ON t.MediaTypeId = m.MediaTypeId;
-- right
SELECT AVG(CASE WHEN m.Name = 'AAC audio file' THEN 100.0 ELSE 0 END) FROM Track t JOIN MediaType m USING (MediaTypeId);
SELECT 100.0 * SUM(COALESCE(m.Name, '') = 'AAC audio file') / COUNT(t.TrackId) FROM Track t, MediaType m WHERE t.MediaTypeId = m.MediaTypeId;
-- wrong
SELECT COUNT(CASE WHEN m.Name = 'AAC audio file' THEN 1 END) * 100 / COUNT(*) FROM Track t JOIN MediaType m ON t.MediaTypeId = m.MediaTypeId;
SELECT CAST(COUNT(CASE WHEN m.Name = 'AAC audio file' THEN 1 END) AS REAL) / COUNT(*) FROM Track t JOIN MediaType m ON t.MediaTypeId = m.MediaTypeId;
SELECT CAST(COUNT(CASE WHEN m.Name LIKE '%AAC audio file' THEN 1 END) AS REAL) * 100 / COUNT(*) FROM Track t JOIN MediaType m ON t.MediaTypeId = m.MediaTypeId;
SELECT AVG(m.Name = 'AAC audio file') * 100 FROM Track t JOIN MediaType m ON t.MediaTypeId = m.MediaTypeId;
SELECT CAST(COUNT(CASE WHEN m.Name = 'AAC audio file' THEN 1 END) AS REAL) * 100 / COUNT(*) FROM MediaType m LEFT JOIN Track t ON t.MediaTypeId = m.MediaTypeId;
SELECT CAST(COUNT(CASE WHEN Name = 'AAC audio file' THEN 1 END) AS REAL) * 100 / COUNT(*) FROM MediaType;
-- gold
SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.PlaylistId;
-- right
SELECT Name, (SELECT COUNT(*) FROM PlaylistTrack x WHERE x.PlaylistId = p.PlaylistId) FROM Playlist p;
SELECT p.Name, COALESCE(n.c, 0) FROM Playlist p LEFT JOIN (SELECT PlaylistId, COUNT(*) AS c FROM PlaylistTrack GROUP BY PlaylistId) n USING (PlaylistId);
-- wrong
SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.PlaylistId;
SELECT p.Name, COUNT(*) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.PlaylistId;
SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.Name;
SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.TrackId GROUP BY p.PlaylistId;
SELECT p.Name, SUM(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.PlaylistId;
SELECT p.PlaylistId, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = pt.PlaylistId GROUP BY p.PlaylistId;
-- gold
SELECT c.FirstName, c.LastName, MAX(i.InvoiceDate) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.CustomerId ORDER BY MAX(i.InvoiceDate) DESC, c.CustomerId LIMIT 5;
-- right
SELECT FirstName, LastName, d FROM (SELECT c.*, (SELECT MAX(InvoiceDate) FROM Invoice i WHERE i.CustomerId = c.CustomerId) AS d FROM Customer c) WHERE d IS NOT NULL ORDER BY d DESC, CustomerId LIMIT 5;
SELECT c.FirstName, c.LastName, i.InvoiceDate FROM Customer c JOIN (SELECT CustomerId, MAX(InvoiceDate) AS InvoiceDate FROM Invoice GROUP BY CustomerId) i ON i.CustomerId = c.CustomerId ORDER BY 3 DESC, c.CustomerId ASC LIMIT 5;
-- wrong
SELECT c.FirstName, c.LastName, MAX(i.InvoiceDate) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.CustomerId ORDER BY MAX(i.InvoiceDate) DESC, c.CustomerId LIMIT 6;
SELECT c.FirstName, c.LastName, MIN(i.InvoiceDate) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.CustomerId ORDER BY MIN(i.InvoiceDate) DESC, c.CustomerId LIMIT 5;
SELECT c.FirstName, c.LastName, i.InvoiceDate FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId ORDER BY i.InvoiceDate DESC, c.CustomerId LIMIT 5;
SELECT c.FirstName, c.LastName, date(MAX(i.InvoiceDate)) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.CustomerId ORDER BY MAX(i.InvoiceDate) DESC, c.CustomerId LIMIT 5;
SELECT c.FirstName, c.LastName, MAX(i.InvoiceDate) FROM Customer c JOIN Invoice i ON c.CustomerId = i.CustomerId GROUP BY c.LastName ORDER BY MAX(i.InvoiceDate) DESC, c.CustomerId LIMIT 5;
SELECT c.FirstName, c.LastName, MAX(i.InvoiceDate) FROM Customer c JOIN Invoice i ON c.CustomerId = i.InvoiceId GROUP BY c.CustomerId ORDER BY MAX(i.InvoiceDate) DESC, c.CustomerId LIMIT 5;
-- gold
SELECT InvoiceId FROM Invoice WHERE Total BETWEEN 5 AND 10;
-- right
SELECT InvoiceId FROM Invoice WHERE Total >= 5 AND Total <= 10;
SELECT InvoiceId FROM Invoice WHERE NOT (Total < 5 OR Total > 10);
SELECT InvoiceId FROM Invoice WHERE Total >= 5 INTERSECT SELECT InvoiceId FROM Invoice WHERE Total <= 10;
-- wrong
SELECT InvoiceId FROM Invoice WHERE Total > 5 AND Total < 10;
SELECT InvoiceId FROM Invoice WHERE Total >= 5 AND Total < 10;
SELECT InvoiceId FROM Invoice WHERE Total > 5 AND Total <= 10;
SELECT InvoiceId FROM Invoice WHERE Total BETWEEN 5 AND 10.5;
SELECT CustomerId FROM Invoice WHERE Total BETWEEN 5 AND 10;
SELECT InvoiceId FROM Invoice WHERE CAST(Total AS INTEGER) BETWEEN 5 AND 10;
SELECT il.InvoiceId FROM InvoiceLine il GROUP BY il.InvoiceId HAVING SUM(il.UnitPrice * il.Quantity) BETWEEN 5 AND 10;
-- gold
SELECT COUNT(*) FROM Customer WHERE Company IS NULL;
-- right
SELECT COUNT(*) - COUNT(Company) FROM Customer;
SELECT COUNT(CustomerId) FROM Customer WHERE COALESCE(Company, 'none') = 'none' AND Company IS NOT 'none';
-- wrong
SELECT COUNT(*) FROM Customer WHERE Company = NULL;
SELECT COUNT(*) FROM Customer WHERE Company = '';
SELECT COUNT(Company) FROM Customer WHERE Company IS NULL;
SELECT COUNT(*) FROM Customer WHERE Company IS NOT NULL;
SELECT COUNT(DISTINCT CustomerId) FROM Customer WHERE Company IS NULL AND Email IS NOT NULL AND State IS NULL;
SELECT COUNT(*) FROM Customer WHERE State IS NULL;
-- gold
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.AlbumId HAVING COUNT(t.TrackId) > (SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM Track WHERE AlbumId IS NOT NULL GROUP BY AlbumId));
-- right
WITH n AS (SELECT AlbumId, COUNT(*) AS n FROM Track WHERE AlbumId IS NOT NULL GROUP BY AlbumId) SELECT a.Title FROM n JOIN Album a USING (AlbumId) WHERE n.n > (SELECT AVG(n) FROM n);
SELECT Title FROM Album a WHERE (SELECT COUNT(*) FROM Track t WHERE t.AlbumId = a.AlbumId) > (SELECT COUNT(AlbumId) * 1.0 / COUNT(DISTINCT AlbumId) FROM Track);
-- wrong
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.AlbumId HAVING COUNT(t.TrackId) >= (SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM Track WHERE AlbumId IS NOT NULL GROUP BY AlbumId));
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.AlbumId HAVING COUNT(t.TrackId) > (SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM Track GROUP BY AlbumId));
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.AlbumId HAVING COUNT(t.TrackId) > (SELECT COUNT(*) / COUNT(DISTINCT AlbumId) FROM Track);
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.Title HAVING COUNT(t.TrackId) > (SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM Track WHERE AlbumId IS NOT NULL GROUP BY AlbumId));
SELECT al.Title FROM Album al JOIN Track t ON al.AlbumId = t.AlbumId GROUP BY al.AlbumId HAVING COUNT(t.TrackId) > (SELECT COUNT(AlbumId) * 1.0 / (SELECT COUNT(*) FROM Album) FROM Track);
-- gold
SELECT BillingCity FROM Invoice GROUP BY BillingCity HAVING SUM(Total) > 100 ORDER BY BillingCity;
-- right
SELECT c FROM (SELECT BillingCity AS c, SUM(Total) AS s FROM Invoice GROUP BY BillingCity) WHERE s > 100 ORDER BY c;
SELECT DISTINCT BillingCity FROM Invoice i WHERE (SELECT SUM(Total) FROM Invoice j WHERE j.BillingCity IS i.BillingCity) > 100 ORDER BY BillingCity;
-- wrong
SELECT BillingCity FROM Invoice WHERE Total > 100 GROUP BY BillingCity ORDER BY BillingCity;
SELECT BillingCity FROM Invoice GROUP BY BillingCity HAVING SUM(Total) > 100 ORDER BY SUM(Total);
SELECT BillingCity FROM Invoice GROUP BY BillingCity HAVING SUM(Total) > 100 ORDER BY BillingCity DESC;
SELECT BillingCity FROM Invoice WHERE BillingCity IS NOT NULL GROUP BY BillingCity HAVING SUM(Total) > 100 ORDER BY BillingCity;
SELECT BillingCity FROM Invoice GROUP BY BillingCity HAVING MAX(Total) > 10 ORDER BY BillingCity;
SELECT BillingCity FROM Invoice GROUP BY BillingCity HAVING COUNT(*) > 10 ORDER BY BillingCity;
-- gold
SELECT Title FROM Album WHERE ArtistId = (SELECT ArtistId FROM Artist WHERE ArtistId = 1);
-- right
SELECT al.Title FROM Album al JOIN Artist ar ON al.ArtistId = ar.ArtistId WHERE ar.ArtistId = 1;
SELECT Title FROM Album WHERE ArtistId = 1;
SELECT Title FROM Album al WHERE EXISTS (SELECT 1 FROM Artist ar WHERE ar.ArtistId = al.ArtistId AND ar.ArtistId = 1);
-- wrong
SELECT Title FROM Album WHERE AlbumId = 1;
SELECT Title FROM Album WHERE ArtistId <= 1 LIMIT 1;
SELECT DISTINCT Title FROM Album WHERE ArtistId = 1;
SELECT al.Title FROM Album al JOIN Artist ar ON al.ArtistId = ar.ArtistId WHERE ar.Name = 'AC/DC';
SELECT Title FROM Album WHERE ArtistId = 2;
SELECT UPPER(Title) FROM Album WHERE ArtistId = 1;
-- gold
SELECT Name FROM Artist WHERE ArtistId = 1;
-- right
SELECT Name FROM Artist WHERE ArtistId IN (1);
SELECT a.Name FROM Artist a WHERE a.ArtistId BETWEEN 1 AND 1;
-- wrong
SELECT 'AC/DC';
SELECT Name FROM Artist LIMIT 1 OFFSET 1;
SELECT Name FROM Artist WHERE Name = 'AC/DC' LIMIT 1;
SELECT MIN(Name) FROM Artist;
SELECT Title FROM Album WHERE AlbumId = 1;
-- gold
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND Composer IS NOT NULL AND GenreId NOT IN (1, 2);
-- right
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND Composer IS NOT NULL AND GenreId <> 1 AND GenreId <> 2;
SELECT Name FROM Track WHERE NOT (UnitPrice <> 0.99 OR Composer IS NULL OR GenreId IN (1, 2) OR GenreId IS NULL);
-- wrong
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND GenreId NOT IN (1, 2);
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND Composer IS NOT NULL AND GenreId NOT IN (1);
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND Composer IS NOT NULL AND (GenreId <> 1 OR GenreId <> 2);
SELECT Name FROM Track WHERE UnitPrice = 0.99 AND Composer IS NOT NULL AND (GenreId NOT IN (1, 2) OR GenreId IS NULL);
SELECT Name FROM Track WHERE UnitPrice < 1.99 OR Composer IS NOT NULL AND GenreId NOT IN (1, 2);
SELECT Name FROM Track WHERE Composer IS NOT NULL AND GenreId NOT IN (1, 2);
