-- After Microsoft's Northwind, with its own CHECKs. A comment says how many rows a table gets, or what values a column.
CREATE TABLE Categories ( -- 8
    CategoryID INTEGER PRIMARY KEY NOT NULL,
    CategoryName TEXT NOT NULL, -- Beverages | Condiments | Seafood | Produce | category #
    Description TEXT -- Soft drinks, coffees and teas | Sweet and savory sauces | Seaweed and fish
);
CREATE TABLE Suppliers ( -- 25
    SupplierID INTEGER PRIMARY KEY NOT NULL,
    CompanyName TEXT NOT NULL, -- Exotic Liquids | Tokyo Traders | Pavlova | supplier #
    City TEXT, -- London | Tokyo | Berlin | Paris | Oslo
    Country TEXT, -- UK | Japan | Germany | France | Norway | USA
    Fax TEXT -- (0#) 555-1#
);
CREATE TABLE Products ( -- 75
    ProductID INTEGER PRIMARY KEY NOT NULL,
    ProductName TEXT NOT NULL, -- Chai | Chang | Aniseed Syrup | Ikura | Tofu | product #
    SupplierID INTEGER REFERENCES Suppliers (SupplierID),
    CategoryID INTEGER REFERENCES Categories (CategoryID),
    UnitPrice NUMERIC DEFAULT 0 CHECK (UnitPrice >= 0), -- 10.00 | 18.00 | 20.00 | 2.50..99.90
    UnitsInStock INTEGER DEFAULT 0 CHECK (UnitsInStock >= 0), -- 0 | 10 | 1..120
    ReorderLevel INTEGER DEFAULT 0 CHECK (ReorderLevel >= 0), -- 0 | 5 | 10 | 25 | 30
    Discontinued INTEGER NOT NULL DEFAULT 0 CHECK (Discontinued IN (0, 1)) -- 0 | 0 | 0 | 1
);
CREATE TABLE Customers ( -- 60
    CustomerID TEXT PRIMARY KEY NOT NULL, -- C####
    CompanyName TEXT NOT NULL, -- Alfreds Futterkiste | Around the Horn | Bon app' | company #
    ContactTitle TEXT, -- Owner | Sales Representative | Marketing Manager | Order Administrator
    City TEXT, -- London | Tokyo | Berlin | Paris | Oslo
    Region TEXT, -- BC | SP | WA | OR
    Country TEXT -- UK | Germany | France | Norway | USA | Brazil
);
CREATE TABLE Employees ( -- 20
    EmployeeID INTEGER PRIMARY KEY NOT NULL,
    LastName TEXT NOT NULL, -- Davolio | Fuller | Leverling | Peacock | Suyama | King
    FirstName TEXT NOT NULL, -- Nancy | Andrew | Janet | Anne | Michael | Robert
    TitleOfCourtesy TEXT NOT NULL CHECK (TitleOfCourtesy IN ('Mr.', 'Ms.', 'Dr.')), -- Mr. | Ms. | Dr.
    BirthDate DATE CHECK (BirthDate < '2000-01-01'), -- 1937-01-01..1969-12-31
    HireDate DATE, -- 1992-01-01..1994-12-31
    ReportsTo INTEGER REFERENCES Employees (EmployeeID)
);
CREATE TABLE Shippers ( -- 4
    ShipperID INTEGER PRIMARY KEY NOT NULL,
    CompanyName TEXT NOT NULL -- Speedy Express | United Package | Federal Shipping | shipper #
);
CREATE TABLE Orders ( -- 220
    OrderID INTEGER PRIMARY KEY NOT NULL,
    CustomerID TEXT REFERENCES Customers (CustomerID),
    EmployeeID INTEGER REFERENCES Employees (EmployeeID),
    OrderDate DATE NOT NULL, -- 1996-07-01..1998-05-31
    RequiredDate DATE, -- 1996-08-01..1998-06-30
    ShippedDate DATE, -- 1996-07-05..1998-06-20
    ShipVia INTEGER REFERENCES Shippers (ShipperID),
    Freight NUMERIC DEFAULT 0, -- 0.02..500.00 | 50.00 | 100.00
    ShipCountry TEXT -- UK | Germany | France | Norway | USA | Brazil
);
CREATE TABLE "Order Details" ( -- 450
    OrderID INTEGER NOT NULL REFERENCES Orders (OrderID),
    ProductID INTEGER NOT NULL REFERENCES Products (ProductID),
    UnitPrice NUMERIC NOT NULL DEFAULT 0 CHECK (UnitPrice >= 0), -- 10.00 | 18.00 | 2.50..99.90
    Quantity INTEGER NOT NULL DEFAULT 1 CHECK (Quantity > 0), -- 1 | 10 | 20 | 1..100
    Discount REAL NOT NULL DEFAULT 0 CHECK (Discount >= 0 AND Discount <= 1), -- 0.0 | 0.0 | 0.05 | 0.1 | 0.25
    PRIMARY KEY (OrderID, ProductID)
);
