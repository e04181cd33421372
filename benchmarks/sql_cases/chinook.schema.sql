-- After https://github.com/lerocha/chinook-database. A comment says how many rows a table gets, or what values a column.
CREATE TABLE Artist ( -- 70
    ArtistId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(120) -- AC/DC | Accept | Aerosmith | Queen | Iron Maiden | U2 | Os Mutantes | The Who | band #
);
CREATE TABLE Album ( -- 110
    AlbumId INTEGER PRIMARY KEY NOT NULL,
    Title NVARCHAR(160) NOT NULL, -- Live | Greatest Hits | Greatest Hits II | Unplugged | Live at Rome | album #
    ArtistId INTEGER NOT NULL REFERENCES Artist (ArtistId)
);
CREATE TABLE Genre ( -- 10
    GenreId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(120) -- Rock | Jazz | Metal | Folk Rock | Latin | Blues | Pop | Classical | genre #
);
CREATE TABLE MediaType ( -- 6
    MediaTypeId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(120) -- MPEG audio file | AAC audio file | Protected AAC audio file | MPEG-4 video file
);
CREATE TABLE Track ( -- 300
    TrackId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(200) NOT NULL, -- Love Song | Love Is All | Glove | The Hunt | Home | Night | Intro | track #
    AlbumId INTEGER REFERENCES Album (AlbumId),
    MediaTypeId INTEGER NOT NULL REFERENCES MediaType (MediaTypeId),
    GenreId INTEGER REFERENCES Genre (GenreId),
    Composer NVARCHAR(220), -- Angus Young | Freddie Mercury | Brian May | Steve Harris | composer #
    Milliseconds INTEGER NOT NULL, -- 100000 | 200000 | 299999 | 300000 | 300001 | 50000..600000 | 100000..400000
    Bytes INTEGER, -- 1000000..9000000
    UnitPrice NUMERIC(10,2) NOT NULL -- 0.99 | 1.99
);
CREATE TABLE Employee ( -- 9
    EmployeeId INTEGER PRIMARY KEY NOT NULL,
    LastName NVARCHAR(20) NOT NULL, -- Adams | Edwards | Peacock | Park | Johnson | Mitchell | King
    FirstName NVARCHAR(20) NOT NULL, -- Andrew | Nancy | Jane | Margaret | Steve | Michael
    Title NVARCHAR(30), -- Sales Support Agent | IT Staff | IT Manager | Sales Manager | General Manager
    ReportsTo INTEGER REFERENCES Employee (EmployeeId),
    BirthDate DATETIME, -- 1945-01-01 00:00:00..1979-12-31 00:00:00
    HireDate DATETIME, -- 2002-01-01 00:00:00..2004-12-31 00:00:00
    City NVARCHAR(40) -- Calgary | Edmonton | Lethbridge
);
CREATE TABLE Customer ( -- 60
    CustomerId INTEGER PRIMARY KEY NOT NULL,
    FirstName NVARCHAR(40) NOT NULL, -- Ana | Bjorn | Frank | Frantisek | Helena | Jack | Luis | Mark
    LastName NVARCHAR(20) NOT NULL, -- Almeida | Gomes | Harris | Kohler | Smith | Tremblay | Wood | name #
    Company NVARCHAR(80), -- Apple Inc. | Google Inc. | Rogers Canada | Telus
    City NVARCHAR(40), -- Paris | Berlin | London | New York | Oslo | Prague
    State NVARCHAR(40), -- CA | NY | SP | QC
    Country NVARCHAR(40), -- USA | Canada | Brazil | France | Germany | United Kingdom | Norway
    PostalCode NVARCHAR(10), -- 10#
    Email NVARCHAR(60) NOT NULL, -- mail#@gmail.com | mail#@yahoo.com | mail#@apple.com
    SupportRepId INTEGER REFERENCES Employee (EmployeeId)
);
CREATE TABLE Invoice ( -- 180
    InvoiceId INTEGER PRIMARY KEY NOT NULL,
    CustomerId INTEGER NOT NULL REFERENCES Customer (CustomerId),
    InvoiceDate DATETIME NOT NULL, -- 2009-01-01 00:00:00..2013-12-31 00:00:00
    BillingCity NVARCHAR(40), -- Paris | Berlin | London | New York | Oslo | Prague
    BillingCountry NVARCHAR(40), -- USA | Canada | Brazil | France | Germany | United Kingdom | Norway
    Total NUMERIC(10,2) NOT NULL -- 0.99 | 1.98 | 5.00 | 10.00 | 20.00 | 0.99..25.99
);
CREATE TABLE InvoiceLine ( -- 350
    InvoiceLineId INTEGER PRIMARY KEY NOT NULL,
    InvoiceId INTEGER NOT NULL REFERENCES Invoice (InvoiceId),
    TrackId INTEGER NOT NULL REFERENCES Track (TrackId),
    UnitPrice NUMERIC(10,2) NOT NULL, -- 0.99 | 1.99
    Quantity INTEGER NOT NULL -- 1 | 1 | 2 | 3
);
CREATE TABLE Playlist ( -- 20
    PlaylistId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(120) -- Music | Movies | TV Shows | 90s Music | Grunge | Brazilian Music
);
CREATE TABLE PlaylistTrack ( -- 350
    PlaylistId INTEGER NOT NULL REFERENCES Playlist (PlaylistId),
    TrackId INTEGER NOT NULL REFERENCES Track (TrackId),
    PRIMARY KEY (PlaylistId, TrackId)
);
