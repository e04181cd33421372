-- After the Ergast schema of BIRD's formula_1.
CREATE TABLE circuits ( -- 20
    circuitId INTEGER PRIMARY KEY NOT NULL,
    name TEXT NOT NULL, -- Monza | Silverstone Circuit | Sepang International Circuit | Suzuka | circuit #
    location TEXT, -- Monza | Silverstone | Kuala Lumpur | Suzuka
    country TEXT, -- Italy | UK | Malaysia | Japan | Germany
    lat REAL, -- 2.76 | 3.00 | 26.03 | 0.10..60.00
    alt INTEGER -- 10 | 18 | 7 | 0..2200
);
CREATE TABLE constructors ( -- 20
    constructorId INTEGER PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE, -- Ferrari | McLaren | Williams | Renault | Toro Rosso | team ##
    nationality TEXT -- British | Italian | German | French | Japanese
);
CREATE TABLE drivers ( -- 60
    driverId INTEGER PRIMARY KEY NOT NULL,
    forename TEXT NOT NULL, -- Lewis | Nick | Nico | Fernando | Bruno | Alex
    surname TEXT NOT NULL, -- Hamilton | Heidfeld | Rosberg | Alonso | Senna | Yoong | driver #
    code TEXT, -- HAM | HEI | ROS | ALO | SEN
    dob DATE, -- 1960-01-01..1998-12-31 | 1985-01-07
    nationality TEXT -- British | German | Spanish | Brazilian | Malaysian | French
);
CREATE TABLE races ( -- 80
    raceId INTEGER PRIMARY KEY NOT NULL,
    year INTEGER NOT NULL, -- 2005..2017
    round INTEGER NOT NULL, -- 1..19
    circuitId INTEGER NOT NULL REFERENCES circuits (circuitId),
    name TEXT NOT NULL, -- Australian Grand Prix | Malaysian Grand Prix | Italian Grand Prix | Japanese Grand Prix | British Grand Prix
    date DATE NOT NULL, -- 2005-01-01..2017-12-31
    time TEXT -- 06:00:00 | 12:00:00 | 14:00:00 | 11:30:00
);
CREATE TABLE results ( -- 500
    resultId INTEGER PRIMARY KEY NOT NULL,
    raceId INTEGER NOT NULL REFERENCES races (raceId),
    driverId INTEGER NOT NULL REFERENCES drivers (driverId),
    constructorId INTEGER NOT NULL REFERENCES constructors (constructorId),
    grid INTEGER NOT NULL, -- 0 | 1 | 2 | 1..24
    position INTEGER, -- 1 | 2 | 3 | 1..24
    points REAL NOT NULL, -- 10.0 | 8.0 | 6.0 | 0.0 | 0.0
    laps INTEGER NOT NULL, -- 0 | 50..70 | 58
    milliseconds INTEGER, -- 5600000..7200000
    rank INTEGER, -- 1..20
    fastestLapSpeed REAL, -- 180.100..230.900
    statusId INTEGER NOT NULL -- 1 | 1 | 2 | 3 | 11
);
CREATE TABLE qualifying ( -- 150
    qualifyId INTEGER PRIMARY KEY NOT NULL,
    raceId INTEGER NOT NULL REFERENCES races (raceId),
    driverId INTEGER NOT NULL REFERENCES drivers (driverId),
    position INTEGER, -- 1 | 2 | 1..22
    q1 TEXT, -- 1:2#.5 | 1:3#.1
    q3 TEXT -- 1:2#.7 | 1:3#.2
);
