-- After BIRD's financial and codebase_community.
CREATE TABLE district ( -- 25
    district_id INTEGER PRIMARY KEY NOT NULL,
    A2 TEXT NOT NULL, -- Hl.m. Praha | Benesov | Beroun | Kladno | district #
    A3 TEXT NOT NULL, -- Prague | central Bohemia | south Bohemia | north Moravia
    A11 INTEGER NOT NULL, -- 8000..12500 | 10000
    A12 REAL -- 0.10..7.50 | 2.50
);
CREATE TABLE account ( -- 90
    account_id INTEGER PRIMARY KEY NOT NULL,
    district_id INTEGER NOT NULL REFERENCES district (district_id),
    frequency TEXT NOT NULL, -- POPLATEK MESICNE | POPLATEK TYDNE | POPLATEK PO OBRATU
    date DATE NOT NULL -- 1993-01-01..1997-12-31 | 1995-03-24
);
CREATE TABLE client ( -- 90
    client_id INTEGER PRIMARY KEY NOT NULL,
    gender TEXT NOT NULL CHECK (gender IN ('M', 'F')), -- M | F
    birth_date DATE NOT NULL, -- 1930-01-01..1985-12-31
    district_id INTEGER NOT NULL REFERENCES district (district_id)
);
CREATE TABLE disp ( -- 120
    disp_id INTEGER PRIMARY KEY NOT NULL,
    client_id INTEGER NOT NULL REFERENCES client (client_id),
    account_id INTEGER NOT NULL REFERENCES account (account_id),
    type TEXT NOT NULL CHECK (type IN ('OWNER', 'DISPONENT')) -- OWNER | OWNER | DISPONENT
);
CREATE TABLE loan ( -- 60
    loan_id INTEGER PRIMARY KEY NOT NULL,
    account_id INTEGER NOT NULL REFERENCES account (account_id),
    date DATE NOT NULL, -- 1994-01-01..1998-12-08
    amount INTEGER NOT NULL, -- 5000..300000 | 100000 | 200000
    duration INTEGER NOT NULL, -- 12 | 24 | 36 | 48 | 60
    payments REAL NOT NULL, -- 300.0..9900.0
    status TEXT NOT NULL CHECK (status IN ('A', 'B', 'C', 'D')) -- A | B | C | D
);
CREATE TABLE trans ( -- 400
    trans_id INTEGER PRIMARY KEY NOT NULL,
    account_id INTEGER NOT NULL REFERENCES account (account_id),
    date DATE NOT NULL, -- 1993-01-01..1998-12-31
    type TEXT NOT NULL, -- PRIJEM | VYDAJ | VYBER
    operation TEXT, -- VKLAD | VYBER | PREVOD NA UCET | VYBER KARTOU
    amount INTEGER NOT NULL, -- 100..50000 | 10000
    balance INTEGER NOT NULL, -- 0..90000
    k_symbol TEXT -- SIPO | SLUZBY | UROK | DUCHOD
);
CREATE TABLE users ( -- 50
    Id INTEGER PRIMARY KEY NOT NULL,
    DisplayName TEXT NOT NULL, -- csgillespie | Harvey Motulsky | Yevgeny | whuber | user #
    Reputation INTEGER NOT NULL, -- 1..9000 | 100
    CreationDate DATETIME NOT NULL, -- 2010-07-19 06:55:26..2014-09-13 23:59:59
    UpVotes INTEGER NOT NULL, -- 0 | 1..300 | 100
    Age INTEGER -- 18..70 | 40
);
CREATE TABLE posts ( -- 160
    Id INTEGER PRIMARY KEY NOT NULL,
    OwnerUserId INTEGER REFERENCES users (Id),
    PostTypeId INTEGER NOT NULL, -- 1 | 2
    ParentId INTEGER REFERENCES posts (Id),
    Score INTEGER NOT NULL, -- 0..40 | 0 | 20
    ViewCount INTEGER, -- 0..5000
    Title TEXT, -- Eliciting priors from experts | What is normality? | How to use R | title #
    Body TEXT -- short | a longer text about priors | R and SAS | body #
);
