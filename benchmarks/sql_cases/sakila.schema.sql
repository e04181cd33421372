-- After MySQL's Sakila, as its port to SQLite has it. A comment says how many rows a table gets, or what values a column.
CREATE TABLE language ( -- 6
    language_id INTEGER PRIMARY KEY NOT NULL,
    name CHAR(20) NOT NULL UNIQUE -- English | French | Italian | Japanese | German | language #
);
CREATE TABLE actor ( -- 60
    actor_id INTEGER PRIMARY KEY NOT NULL,
    first_name VARCHAR(45) NOT NULL, -- PENELOPE | NICK | ED | JENNIFER | JOHNNY | GRACE | JOE
    last_name VARCHAR(45) NOT NULL -- GUINESS | WAHLBERG | CHASE | DAVIS | BERRY | name #
);
CREATE TABLE category ( -- 9
    category_id INTEGER PRIMARY KEY NOT NULL,
    name VARCHAR(25) NOT NULL -- Action | Animation | Comedy | Drama | Horror | Sci-Fi | category #
);
CREATE TABLE film ( -- 140
    film_id INTEGER PRIMARY KEY NOT NULL,
    title VARCHAR(255) NOT NULL, -- ACADEMY DINOSAUR | ACE GOLDFINGER | ALIEN CENTER | EGG IGBY | film #
    release_year INTEGER, -- 2004 | 2005 | 2006 | 1990..2006
    language_id INTEGER NOT NULL REFERENCES language (language_id),
    original_language_id INTEGER REFERENCES language (language_id),
    rental_duration INTEGER NOT NULL CHECK (rental_duration BETWEEN 3 AND 7), -- 3..7
    rental_rate DECIMAL(4,2) NOT NULL, -- 0.99 | 2.99 | 4.99
    length INTEGER, -- 60 | 90 | 120 | 46..185
    replacement_cost DECIMAL(5,2) NOT NULL, -- 9.99 | 19.99 | 20.00 | 10.00..29.99
    rating VARCHAR(10) CHECK (rating IN ('G', 'PG', 'PG-13', 'R', 'NC-17')) -- G | PG | PG-13 | R | NC-17
);
CREATE TABLE film_actor ( -- 300
    actor_id INTEGER NOT NULL REFERENCES actor (actor_id),
    film_id INTEGER NOT NULL REFERENCES film (film_id),
    PRIMARY KEY (actor_id, film_id)
);
CREATE TABLE film_category ( -- 160
    film_id INTEGER NOT NULL REFERENCES film (film_id),
    category_id INTEGER NOT NULL REFERENCES category (category_id),
    PRIMARY KEY (film_id, category_id)
);
CREATE TABLE store ( -- 5
    store_id INTEGER PRIMARY KEY NOT NULL,
    city VARCHAR(50) NOT NULL -- Lethbridge | Woodridge | Aurora
);
CREATE TABLE customer ( -- 60
    customer_id INTEGER PRIMARY KEY NOT NULL,
    store_id INTEGER NOT NULL REFERENCES store (store_id),
    first_name VARCHAR(45) NOT NULL, -- MARY | PATRICIA | LINDA | BARBARA | JOE | ED
    last_name VARCHAR(45) NOT NULL, -- SMITH | JOHNSON | WILLIAMS | DAVIS | name #
    email VARCHAR(50), -- mail#@sakila.org
    active CHAR(1) NOT NULL DEFAULT 'Y' CHECK (active IN ('Y', 'N')), -- Y | Y | N
    create_date DATE NOT NULL -- 2006-01-01..2006-12-31
);
CREATE TABLE inventory ( -- 200
    inventory_id INTEGER PRIMARY KEY NOT NULL,
    film_id INTEGER NOT NULL REFERENCES film (film_id),
    store_id INTEGER NOT NULL REFERENCES store (store_id)
);
CREATE TABLE rental ( -- 300
    rental_id INTEGER PRIMARY KEY NOT NULL,
    rental_date TIMESTAMP NOT NULL, -- 2005-05-01 00:00:00..2006-09-30 23:59:59
    inventory_id INTEGER NOT NULL REFERENCES inventory (inventory_id),
    customer_id INTEGER NOT NULL REFERENCES customer (customer_id),
    return_date TIMESTAMP -- 2005-05-05 00:00:00..2006-10-10 23:59:59
);
CREATE TABLE payment ( -- 320
    payment_id INTEGER PRIMARY KEY NOT NULL,
    customer_id INTEGER NOT NULL REFERENCES customer (customer_id),
    rental_id INTEGER REFERENCES rental (rental_id),
    amount DECIMAL(5,2) NOT NULL CHECK (amount >= 0), -- 0.99 | 2.99 | 4.99 | 10.00 | 0.00..11.99
    payment_date TIMESTAMP NOT NULL -- 2005-05-01 00:00:00..2006-09-30 23:59:59
);
