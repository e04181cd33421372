-- gold
SELECT ProductName FROM Products WHERE Discontinued = 1;
-- right
SELECT ProductName FROM Products WHERE Discontinued <> 0;
SELECT ProductName FROM Products WHERE Discontinued > 0;
SELECT ProductName FROM Products WHERE Discontinued;
-- wrong
SELECT ProductName FROM Products WHERE Discontinued = 0;
SELECT ProductName FROM Products WHERE Discontinued = '1' AND UnitsInStock = 0;
SELECT ProductName FROM Products WHERE Discontinued = 'true';
SELECT DISTINCT ProductName FROM Products WHERE Discontinued = 1;
SELECT ProductName FROM Products WHERE Discontinued IS NOT NULL;
SELECT ProductName, Discontinued FROM Products WHERE Discontinued = 1;
-- gold
SELECT c.CategoryName, AVG(p.UnitPrice) FROM Categories c JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryID;
-- right
SELECT c.CategoryName, SUM(p.UnitPrice) * 1.0 / COUNT(p.UnitPrice) FROM Products p JOIN Categories c USING (CategoryID) GROUP BY p.CategoryID;
SELECT CategoryName, (SELECT AVG(UnitPrice) FROM Products p WHERE p.CategoryID = c.CategoryID) FROM Categories c WHERE EXISTS (SELECT 1 FROM Products p WHERE p.CategoryID = c.CategoryID);
-- wrong
SELECT c.CategoryName, AVG(p.UnitPrice) FROM Categories c JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryName;
SELECT c.CategoryName, AVG(p.UnitPrice) FROM Categories c LEFT JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryID;
SELECT c.CategoryName, SUM(p.UnitPrice) / COUNT(*) FROM Categories c JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryID;
SELECT c.CategoryName, AVG(COALESCE(p.UnitPrice, 0)) FROM Categories c JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryID;
SELECT c.CategoryName, AVG(p.UnitPrice) FROM Categories c JOIN Products p ON c.CategoryID = p.SupplierID GROUP BY c.CategoryID;
SELECT c.CategoryName, AVG(p.UnitPrice) * 1.000001 FROM Categories c JOIN Products p ON c.CategoryID = p.CategoryID GROUP BY c.CategoryID;
-- gold
SELECT COUNT(*) FROM Orders WHERE ShippedDate > RequiredDate;
-- right
SELECT COUNT(*) FROM Orders WHERE RequiredDate < ShippedDate;
SELECT COUNT(OrderID) FROM Orders WHERE julianday(ShippedDate) > julianday(RequiredDate);
SELECT COUNT(CASE WHEN ShippedDate > RequiredDate THEN 1 END) FROM Orders;
-- wrong
SELECT COUNT(*) FROM Orders WHERE ShippedDate >= RequiredDate;
SELECT COUNT(*) FROM Orders WHERE ShippedDate < RequiredDate;
SELECT COUNT(*) FROM Orders WHERE NOT ShippedDate <= RequiredDate OR ShippedDate IS NULL;
SELECT COUNT(*) FROM Orders WHERE ShippedDate > OrderDate;
SELECT COUNT(DISTINCT CustomerID) FROM Orders WHERE ShippedDate > RequiredDate;
SELECT COUNT(*) FROM Orders WHERE julianday(ShippedDate) - julianday(RequiredDate) > 1;
-- gold
SELECT OrderID, julianday(ShippedDate) - julianday(OrderDate) FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
-- right
SELECT OrderID, julianday(ShippedDate) - julianday(OrderDate) FROM Orders WHERE ShipCountry = 'France' AND NOT ShippedDate IS NULL;
SELECT OrderID, (strftime('%s', ShippedDate) - strftime('%s', OrderDate)) / 86400 FROM Orders WHERE ShipCountry = 'France' AND ShippedDate IS NOT NULL;
-- wrong
SELECT OrderID, julianday(OrderDate) - julianday(ShippedDate) FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
SELECT OrderID, julianday(ShippedDate) - julianday(OrderDate) + 1 FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
SELECT OrderID, julianday(RequiredDate) - julianday(OrderDate) FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
SELECT OrderID, julianday(ShippedDate) - julianday(OrderDate) FROM Orders WHERE ShipCountry = 'France';
SELECT OrderID, ShippedDate - OrderDate FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
SELECT OrderID, ABS(julianday(ShippedDate) - julianday(OrderDate)) FROM Orders WHERE ShippedDate IS NOT NULL AND ShipCountry = 'France';
-- gold
SELECT MAX(julianday(OrderDate)) FROM Orders;
-- right
SELECT julianday(MAX(OrderDate)) FROM Orders;
SELECT MAX(julianday(OrderDate, '+0 days')) FROM Orders WHERE OrderDate IS NOT NULL;
-- wrong
SELECT MAX(julianday(OrderDate)) + 2 FROM Orders;
SELECT MAX(julianday(OrderDate, '+1 day')) FROM Orders;
SELECT MIN(julianday(OrderDate)) FROM Orders;
SELECT MAX(julianday(OrderDate)) - 0.5 FROM Orders;
SELECT MAX(julianday(RequiredDate)) FROM Orders;
SELECT MAX(julianday(OrderDate)) + 1.0 / 24 FROM Orders;
-- gold
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = '1997';
-- right
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) FROM Orders o JOIN "Order Details" od USING (OrderID) WHERE o.OrderDate LIKE '1997%';
SELECT SUM(UnitPrice * Quantity - UnitPrice * Quantity * Discount) FROM [Order Details] WHERE OrderID IN (SELECT OrderID FROM Orders WHERE substr(OrderDate, 1, 4) = '1997');
SELECT SUM((1 - Discount) * Quantity * UnitPrice) FROM "Order Details" od WHERE EXISTS (SELECT 1 FROM Orders o WHERE o.OrderID = od.OrderID AND o.OrderDate >= '1997-01-01' AND o.OrderDate < '1998-01-01');
-- wrong
SELECT SUM(od.UnitPrice * od.Quantity) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = '1997';
SELECT SUM(od.UnitPrice * od.Quantity * od.Discount) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = '1997';
SELECT SUM(od.UnitPrice * od.Quantity - od.Discount) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = '1997';
SELECT SUM(p.UnitPrice * od.Quantity * (1 - od.Discount)) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID JOIN Products p ON p.ProductID = od.ProductID WHERE strftime('%Y', o.OrderDate) = '1997';
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.ShippedDate) = '1997';
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE o.OrderDate BETWEEN '1997-01-01' AND '1997-12-30';
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) * 1.0000005 FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = '1997';
SELECT SUM(od.UnitPrice * od.Quantity * (1 - od.Discount)) FROM "Order Details" od JOIN Orders o ON od.OrderID = o.OrderID WHERE strftime('%Y', o.OrderDate) = 1997;
-- gold
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy = 'Mr.';
-- right
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy NOT IN ('Ms.', 'Dr.');
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy <> 'Ms.' AND TitleOfCourtesy <> 'Dr.';
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy LIKE 'mr%';
-- wrong
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy <> 'Ms.';
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy = 'Mr';
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy LIKE 'M%';
SELECT FirstName, LastName FROM Employees WHERE TitleOfCourtesy = 'mr.';
SELECT LastName, FirstName FROM Employees WHERE TitleOfCourtesy = 'Mr.';
SELECT DISTINCT FirstName, LastName FROM Employees WHERE TitleOfCourtesy = 'Mr.';
-- gold
SELECT CompanyName FROM Customers WHERE CustomerID NOT IN (SELECT CustomerID FROM Orders WHERE CustomerID IS NOT NULL);
-- right
SELECT c.CompanyName FROM Customers c LEFT JOIN Orders o ON o.CustomerID = c.CustomerID WHERE o.OrderID IS NULL;
SELECT CompanyName FROM Customers c WHERE NOT EXISTS (SELECT 1 FROM Orders o WHERE o.CustomerID = c.CustomerID);
SELECT c.CompanyName FROM Customers c LEFT JOIN Orders o ON o.CustomerID = c.CustomerID GROUP BY c.CustomerID HAVING COUNT(o.OrderID) = 0;
-- wrong
SELECT CompanyName FROM Customers WHERE CustomerID NOT IN (SELECT CustomerID FROM Orders);
SELECT CompanyName FROM Customers WHERE CustomerID IN (SELECT CustomerID FROM Orders);
SELECT c.CompanyName FROM Customers c JOIN Orders o ON o.CustomerID <> c.CustomerID;
SELECT c.CompanyName FROM Customers c LEFT JOIN Orders o ON o.CustomerID = c.CustomerID WHERE o.ShippedDate IS NULL;
SELECT CompanyName FROM Customers EXCEPT SELECT c.CompanyName FROM Customers c JOIN Orders o ON o.CustomerID = c.CustomerID;
SELECT c.CompanyName FROM Customers c LEFT JOIN Orders o ON o.CustomerID = c.CustomerID WHERE o.ShipCountry IS NULL;
-- gold
SELECT e.LastName, COUNT(o.OrderID) FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY COUNT(o.OrderID) DESC, e.EmployeeID;
-- right
SELECT LastName, (SELECT COUNT(*) FROM Orders o WHERE o.EmployeeID = e.EmployeeID) AS n FROM Employees e ORDER BY n DESC, EmployeeID;
WITH k AS (SELECT EmployeeID, COUNT(*) AS c FROM Orders GROUP BY EmployeeID) SELECT e.LastName, IFNULL(k.c, 0) FROM Employees e LEFT JOIN k ON k.EmployeeID = e.EmployeeID ORDER BY IFNULL(k.c, 0) DESC, e.EmployeeID;
-- wrong
SELECT e.LastName, COUNT(o.OrderID) AS n FROM Employees e JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY n DESC, e.EmployeeID;
SELECT e.LastName, COUNT(*) AS n FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY n DESC, e.EmployeeID;
SELECT e.LastName, COUNT(o.OrderID) AS n FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY n, e.EmployeeID;
SELECT e.LastName, COUNT(o.OrderID) AS n FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.LastName ORDER BY n DESC, e.EmployeeID;
SELECT e.LastName, COUNT(DISTINCT o.CustomerID) AS n FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY n DESC, e.EmployeeID;
SELECT e.LastName, COUNT(o.OrderID) AS n FROM Employees e LEFT JOIN Orders o ON e.EmployeeID = o.EmployeeID GROUP BY e.EmployeeID ORDER BY e.EmployeeID;
-- gold
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice > (SELECT AVG(UnitPrice) FROM Products);
-- right
WITH m AS (SELECT AVG(UnitPrice) AS a FROM Products) SELECT ProductName, UnitPrice FROM Products, m WHERE UnitPrice > m.a;
SELECT ProductName, UnitPrice FROM (SELECT ProductName, UnitPrice, AVG(UnitPrice) OVER () AS a FROM Products) WHERE a < UnitPrice;
-- wrong
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice < (SELECT AVG(UnitPrice) FROM Products);
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice > (SELECT AVG(UnitPrice) FROM "Order Details");
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice > (SELECT (MIN(UnitPrice) + MAX(UnitPrice)) / 2.0 FROM Products);
SELECT ProductName, UnitPrice FROM Products p WHERE UnitPrice > (SELECT AVG(UnitPrice) FROM Products q WHERE q.CategoryID = p.CategoryID);
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice > (SELECT AVG(DISTINCT UnitPrice) FROM Products);
SELECT ProductName, UnitPrice FROM Products WHERE UnitPrice > (SELECT AVG(UnitPrice) FROM Products WHERE Discontinued = 0);
-- gold
SELECT s.CompanyName FROM Suppliers s JOIN Products p ON s.SupplierID = p.SupplierID WHERE p.UnitsInStock = 0;
-- right
SELECT s.CompanyName FROM Products p JOIN Suppliers s USING (SupplierID) WHERE p.UnitsInStock <= 0;
SELECT s.CompanyName FROM Products p JOIN Suppliers s USING (SupplierID) WHERE p.UnitsInStock < 1;
SELECT (SELECT CompanyName FROM Suppliers s WHERE s.SupplierID = p.SupplierID) FROM Products p WHERE p.UnitsInStock = 0 AND p.SupplierID IS NOT NULL;
-- wrong
SELECT DISTINCT s.CompanyName FROM Suppliers s JOIN Products p ON s.SupplierID = p.SupplierID WHERE p.UnitsInStock = 0;
SELECT CompanyName FROM Suppliers WHERE SupplierID IN (SELECT SupplierID FROM Products WHERE UnitsInStock = 0);
SELECT s.CompanyName FROM Suppliers s JOIN Products p ON s.SupplierID = p.ProductID WHERE p.UnitsInStock = 0;
SELECT s.CompanyName FROM Suppliers s JOIN Products p ON s.SupplierID = p.SupplierID WHERE p.UnitsInStock = 0 OR p.UnitsInStock IS NULL;
SELECT s.CompanyName FROM Suppliers s JOIN Products p ON s.SupplierID = p.SupplierID WHERE p.UnitsInStock <= p.ReorderLevel;
SELECT p.ProductName FROM Suppliers s JOIN Products p ON s.SupplierID = p.SupplierID WHERE p.UnitsInStock = 0;
-- gold
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID GROUP BY c.CustomerID ORDER BY SUM(od.Quantity) DESC LIMIT 1;
-- right
SELECT CompanyName FROM Customers WHERE CustomerID = (SELECT o.CustomerID FROM Orders o JOIN "Order Details" od USING (OrderID) WHERE o.CustomerID IS NOT NULL GROUP BY o.CustomerID ORDER BY SUM(od.Quantity) DESC LIMIT 1);
WITH q AS (SELECT o.CustomerID AS c, SUM(od.Quantity) AS s FROM Orders o JOIN "Order Details" od USING (OrderID) WHERE o.CustomerID IS NOT NULL GROUP BY 1) SELECT CompanyName FROM Customers JOIN q ON q.c = CustomerID WHERE s = (SELECT MAX(s) FROM q);
-- wrong
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID GROUP BY c.CustomerID ORDER BY COUNT(*) DESC LIMIT 1;
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID ORDER BY od.Quantity DESC LIMIT 1;
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID GROUP BY c.CompanyName ORDER BY SUM(od.Quantity) DESC LIMIT 1;
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID GROUP BY c.CustomerID ORDER BY COUNT(od.Quantity) DESC LIMIT 1;
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID GROUP BY c.CustomerID ORDER BY SUM(od.Quantity) DESC LIMIT 1 OFFSET 1;
SELECT c.CompanyName FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID JOIN "Order Details" od ON o.OrderID = od.OrderID GROUP BY c.CustomerID ORDER BY SUM(od.Quantity * od.UnitPrice) DESC LIMIT 1;
-- gold
SELECT DISTINCT ShipCountry FROM Orders WHERE Freight > 100 ORDER BY ShipCountry;
-- right
SELECT ShipCountry FROM Orders WHERE Freight > 100 GROUP BY ShipCountry ORDER BY ShipCountry;
SELECT ShipCountry FROM Orders WHERE 100 < Freight UNION SELECT ShipCountry FROM Orders WHERE Freight > 100 ORDER BY 1;
SELECT ShipCountry FROM Orders GROUP BY ShipCountry HAVING MAX(Freight) > 100 ORDER BY ShipCountry;
-- wrong
SELECT ShipCountry FROM Orders WHERE Freight > 100 ORDER BY ShipCountry;
SELECT DISTINCT ShipCountry FROM Orders WHERE Freight > 100 ORDER BY ShipCountry DESC;
SELECT DISTINCT ShipCountry FROM Orders WHERE Freight >= 100 ORDER BY ShipCountry;
SELECT DISTINCT c.Country FROM Orders o JOIN Customers c ON o.CustomerID = c.CustomerID WHERE o.Freight > 100 ORDER BY c.Country;
SELECT ShipCountry FROM Orders GROUP BY ShipCountry HAVING SUM(Freight) > 100 ORDER BY ShipCountry;
SELECT DISTINCT ShipCountry FROM Orders WHERE Freight > 100 AND ShipCountry IS NOT NULL ORDER BY ShipCountry;
-- gold
SELECT COUNT(*) FROM Customers WHERE Country = 'Germany' AND Region IS NULL;
-- right
SELECT SUM(Country = 'Germany' AND Region IS NULL) FROM Customers WHERE Country IS NOT NULL HAVING COUNT(*) > 0 UNION ALL SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM Customers WHERE Country IS NOT NULL);
SELECT COUNT(CustomerID) FROM Customers WHERE Region IS NULL AND Country IN ('Germany');
SELECT COUNT(*) - COUNT(Region) FROM Customers WHERE Country = 'Germany';
-- wrong
SELECT COUNT(*) FROM Customers WHERE Country = 'Germany';
SELECT COUNT(*) FROM Customers WHERE Country = 'Germany' AND Region = 'NULL';
SELECT COUNT(*) FROM Customers WHERE Country = 'Germany' OR Region IS NULL;
SELECT COUNT(Region) FROM Customers WHERE Country = 'Germany' AND Region IS NULL;
SELECT COUNT(*) FROM Customers WHERE Country = 'Germany' AND Region IS NOT NULL;
SELECT COUNT(DISTINCT City) FROM Customers WHERE Country = 'Germany' AND Region IS NULL;
SELECT COUNT(*) FROM Customers WHERE Country = 'GERMANY' AND Region IS NULL;
-- gold
SELECT sh.CompanyName, COUNT(*) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.ShipVia WHERE o.Freight BETWEEN 50 AND 100 GROUP BY sh.ShipperID;
-- right
SELECT sh.CompanyName, SUM(1) FROM Orders o, Shippers sh WHERE sh.ShipperID = o.ShipVia AND o.Freight >= 50 AND o.Freight <= 100 GROUP BY o.ShipVia;
SELECT CompanyName, n FROM (SELECT ShipVia, COUNT(*) AS n FROM Orders WHERE NOT (Freight < 50 OR Freight > 100) GROUP BY ShipVia) x JOIN Shippers ON ShipperID = x.ShipVia;
-- wrong
SELECT sh.CompanyName, COUNT(*) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.ShipVia WHERE o.Freight > 50 AND o.Freight < 100 GROUP BY sh.ShipperID;
SELECT sh.CompanyName, COUNT(*) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.OrderID WHERE o.Freight BETWEEN 50 AND 100 GROUP BY sh.ShipperID;
SELECT sh.CompanyName, COUNT(*) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.ShipVia WHERE o.Freight BETWEEN 100 AND 50 GROUP BY sh.ShipperID;
SELECT sh.CompanyName, COUNT(*) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.EmployeeID WHERE o.Freight BETWEEN 50 AND 100 GROUP BY sh.ShipperID;
SELECT sh.CompanyName, COUNT(o.OrderID) FROM Shippers sh LEFT JOIN Orders o ON sh.ShipperID = o.ShipVia AND o.Freight BETWEEN 50 AND 100 GROUP BY sh.ShipperID;
SELECT sh.CompanyName, COUNT(DISTINCT o.CustomerID) FROM Shippers sh JOIN Orders o ON sh.ShipperID = o.ShipVia WHERE o.Freight BETWEEN 50 AND 100 GROUP BY sh.ShipperID;
-- gold
SELECT e.FirstName, e.LastName FROM Employees e WHERE e.BirthDate = (SELECT MIN(BirthDate) FROM Employees);
-- right
SELECT FirstName, LastName FROM Employees WHERE BirthDate <= (SELECT MIN(BirthDate) FROM Employees);
SELECT FirstName, LastName FROM (SELECT *, RANK() OVER (ORDER BY BirthDate) AS r FROM Employees WHERE BirthDate IS NOT NULL) WHERE r = 1;
SELECT FirstName, LastName FROM Employees a WHERE BirthDate IS NOT NULL AND NOT EXISTS (SELECT 1 FROM Employees b WHERE b.BirthDate < a.BirthDate);
-- wrong
SELECT e.FirstName, e.LastName FROM Employees e WHERE e.BirthDate = (SELECT MAX(BirthDate) FROM Employees);
SELECT e.FirstName, e.LastName FROM Employees e WHERE e.HireDate = (SELECT MIN(HireDate) FROM Employees);
SELECT FirstName, LastName FROM Employees ORDER BY BirthDate LIMIT 1;
SELECT e.FirstName, e.LastName FROM Employees e WHERE strftime('%Y', e.BirthDate) = (SELECT strftime('%Y', MIN(BirthDate)) FROM Employees);
SELECT e.FirstName, e.LastName, MIN(e.BirthDate) FROM Employees e;
SELECT DISTINCT e.FirstName, e.LastName FROM Employees e WHERE e.BirthDate <= (SELECT MIN(BirthDate) FROM Employees WHERE ReportsTo IS NOT NULL);
-- gold
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount = 0 GROUP BY p.ProductID HAVING SUM(od.Quantity) > 100;
-- right
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od USING (ProductID) WHERE od.Discount <= 0 GROUP BY p.ProductID HAVING SUM(od.Quantity) >= 101;
SELECT ProductName, q FROM (SELECT p.ProductName, SUM(CASE WHEN od.Discount = 0 THEN od.Quantity END) AS q FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID GROUP BY p.ProductID) WHERE q > 100;
-- wrong
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID GROUP BY p.ProductID HAVING SUM(od.Quantity) > 100;
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount = 0 AND od.Quantity > 100 GROUP BY p.ProductID;
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount > 0 GROUP BY p.ProductID HAVING SUM(od.Quantity) > 100;
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount = 0 GROUP BY p.ProductID HAVING SUM(od.Quantity) >= 100;
SELECT p.ProductName, SUM(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount = 0 GROUP BY p.ProductName HAVING SUM(od.Quantity) > 100;
SELECT p.ProductName, COUNT(od.Quantity) FROM Products p JOIN "Order Details" od ON p.ProductID = od.ProductID WHERE od.Discount = 0 GROUP BY p.ProductID HAVING SUM(od.Quantity) > 100;
-- gold
SELECT City, Country FROM Customers UNION SELECT City, Country FROM Suppliers;
-- right
SELECT DISTINCT City, Country FROM (SELECT City, Country FROM Customers UNION ALL SELECT City, Country FROM Suppliers);
SELECT City, Country FROM Suppliers UNION SELECT City, Country FROM Customers;
-- wrong
SELECT City, Country FROM Customers UNION ALL SELECT City, Country FROM Suppliers;
SELECT City, Country FROM Customers INTERSECT SELECT City, Country FROM Suppliers;
SELECT City, Country FROM Customers EXCEPT SELECT City, Country FROM Suppliers;
SELECT DISTINCT c.City, c.Country FROM Customers c JOIN Suppliers s ON c.City = s.City;
SELECT DISTINCT City, Country FROM Customers;
SELECT Country, City FROM Customers UNION SELECT Country, City FROM Suppliers;
-- gold
SELECT ProductName, CASE WHEN UnitsInStock <= ReorderLevel THEN 'order' ELSE 'ok' END FROM Products WHERE Discontinued = 0;
-- right
SELECT ProductName, IIF(ReorderLevel >= UnitsInStock, 'order', 'ok') FROM Products WHERE NOT Discontinued;
SELECT ProductName, 'order' FROM Products WHERE Discontinued = 0 AND UnitsInStock <= ReorderLevel UNION ALL SELECT ProductName, 'ok' FROM Products WHERE Discontinued = 0 AND (UnitsInStock <= ReorderLevel) IS NOT TRUE;
-- wrong
SELECT ProductName, CASE WHEN UnitsInStock < ReorderLevel THEN 'order' ELSE 'ok' END FROM Products WHERE Discontinued = 0;
SELECT ProductName, CASE WHEN UnitsInStock <= ReorderLevel THEN 'ok' ELSE 'order' END FROM Products WHERE Discontinued = 0;
SELECT ProductName, CASE WHEN UnitsInStock > ReorderLevel THEN 'ok' ELSE 'order' END FROM Products WHERE Discontinued = 0;
SELECT ProductName, CASE WHEN UnitsInStock <= ReorderLevel THEN 'Order' ELSE 'OK' END FROM Products WHERE Discontinued = 0;
SELECT ProductName, CASE WHEN UnitsInStock <= ReorderLevel THEN 'order' ELSE 'ok' END FROM Products;
SELECT ProductName, CASE WHEN UnitsInStock <= ReorderLevel THEN 'order' END FROM Products WHERE Discontinued = 0;
-- gold
SELECT CustomerID, COUNT(*) FROM Orders WHERE OrderDate >= '1997-06-01' GROUP BY CustomerID HAVING COUNT(*) >= 3;
-- right
SELECT CustomerID, n FROM (SELECT CustomerID, COUNT(*) AS n FROM Orders WHERE NOT OrderDate < '1997-06-01' GROUP BY CustomerID) WHERE n > 2;
SELECT CustomerID, COUNT(OrderID) FROM Orders WHERE date(OrderDate) >= date('1997-06-01') GROUP BY 1 HAVING COUNT(OrderID) >= 3;
-- wrong
SELECT CustomerID, COUNT(*) FROM Orders WHERE OrderDate > '1997-06-01' GROUP BY CustomerID HAVING COUNT(*) >= 3;
SELECT CustomerID, COUNT(*) FROM Orders WHERE OrderDate >= '1997-06-01' GROUP BY CustomerID HAVING COUNT(*) > 3;
SELECT CustomerID, COUNT(*) FROM Orders WHERE OrderDate >= '1997-06-03' GROUP BY CustomerID HAVING COUNT(*) >= 3;
SELECT CustomerID, COUNT(CustomerID) FROM Orders WHERE OrderDate >= '1997-06-01' GROUP BY CustomerID HAVING COUNT(CustomerID) >= 3;
SELECT CustomerID, COUNT(*) FROM Orders WHERE ShippedDate >= '1997-06-01' GROUP BY CustomerID HAVING COUNT(*) >= 3;
SELECT c.CustomerID, COUNT(*) FROM Customers c JOIN Orders o ON c.CustomerID = o.CustomerID WHERE o.OrderDate >= '1997-06-01' GROUP BY c.CustomerID HAVING COUNT(*) >= 3;
-- gold
SELECT SUM(UnitPrice * UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
-- right
SELECT SUM(UnitsInStock * UnitPrice) FROM Products WHERE CategoryID IN (1) AND 25 < ReorderLevel;
SELECT SUM(CASE WHEN CategoryID = 1 AND ReorderLevel > 25 THEN UnitPrice * UnitsInStock END) FROM Products;
SELECT SUM(v) FROM (SELECT UnitPrice * UnitsInStock AS v FROM Products WHERE CategoryID = 1 AND ReorderLevel >= 26);
-- wrong
SELECT SUM(UnitPrice * UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel >= 25;
SELECT SUM(UnitPrice) * SUM(UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
SELECT TOTAL(UnitPrice * UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
SELECT SUM(DISTINCT UnitPrice * UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
SELECT SUM(UnitPrice * UnitsInStock) FROM Products WHERE SupplierID = 1 AND ReorderLevel > 25;
SELECT SUM(UnitPrice) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
SELECT AVG(UnitPrice * UnitsInStock) FROM Products WHERE CategoryID = 1 AND ReorderLevel > 25;
