-- gold
SELECT title FROM film WHERE rating = 'G';
-- right
SELECT title FROM film WHERE rating NOT IN ('PG', 'PG-13', 'R', 'NC-17');
SELECT f.title FROM film f WHERE f.rating <= 'G';
SELECT title FROM film WHERE rating LIKE 'g';
-- wrong
SELECT title FROM film WHERE rating = 'PG';
SELECT title FROM film WHERE rating LIKE '%G';
SELECT title FROM film WHERE rating = 'g';
SELECT title FROM film WHERE rating = 'G' OR rating IS NULL;
SELECT DISTINCT title FROM film WHERE rating = 'G';
SELECT title FROM film WHERE rating LIKE '%G%';
-- gold
SELECT COUNT(*) FROM customer WHERE active = 'Y';
-- right
SELECT COUNT(*) FROM customer WHERE active <> 'N';
SELECT COUNT(customer_id) FROM customer WHERE NOT active = 'N';
SELECT COUNT(CASE active WHEN 'Y' THEN 1 END) FROM customer;
-- wrong
SELECT COUNT(*) FROM customer WHERE active = 'y';
SELECT COUNT(*) FROM customer WHERE active = 1;
SELECT COUNT(*) FROM customer;
SELECT COUNT(active) FROM customer;
SELECT COUNT(email) FROM customer WHERE active = 'Y';
SELECT COUNT(DISTINCT last_name) FROM customer WHERE active = 'Y';
SELECT COUNT(*) FROM customer WHERE active = 'N';
-- gold
SELECT a.first_name, a.last_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id GROUP BY a.actor_id HAVING COUNT(*) > 5;
-- right
SELECT a.first_name, a.last_name, COUNT(fa.film_id) FROM film_actor fa JOIN actor a USING (actor_id) GROUP BY fa.actor_id HAVING COUNT(fa.film_id) >= 6;
SELECT first_name, last_name, n FROM actor NATURAL JOIN (SELECT actor_id, COUNT(*) AS n FROM film_actor GROUP BY actor_id) WHERE n > 5;
WITH k AS (SELECT actor_id, COUNT(DISTINCT film_id) AS n FROM film_actor GROUP BY actor_id) SELECT a.first_name, a.last_name, k.n FROM k, actor a WHERE a.actor_id = k.actor_id AND NOT k.n <= 5;
-- wrong
SELECT a.first_name, a.last_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id GROUP BY a.actor_id HAVING COUNT(*) >= 5;
SELECT a.first_name, a.last_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id GROUP BY a.first_name, a.last_name HAVING COUNT(*) > 5;
SELECT a.first_name, a.last_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.film_id GROUP BY a.actor_id HAVING COUNT(*) > 5;
SELECT a.first_name, a.last_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film_category fc ON fc.film_id = fa.film_id GROUP BY a.actor_id HAVING COUNT(*) > 5;
SELECT a.last_name, a.first_name, COUNT(*) FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id GROUP BY a.actor_id HAVING COUNT(*) > 5;
SELECT a.first_name, a.last_name, 6 FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id GROUP BY a.actor_id HAVING COUNT(*) > 5;
-- gold
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id WHERE c.name = 'Comedy' ORDER BY f.length DESC LIMIT 3;
-- right
SELECT title FROM (SELECT f.title, f.length FROM film f, film_category fc, category c WHERE f.film_id = fc.film_id AND fc.category_id = c.category_id AND c.name = 'Comedy') ORDER BY length DESC LIMIT 3;
WITH x AS (SELECT fc.film_id FROM film_category fc JOIN category c USING (category_id) WHERE c.name = 'Comedy') SELECT f.title FROM x JOIN film f USING (film_id) ORDER BY f.length DESC LIMIT 3;
-- wrong
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id WHERE c.name = 'Comedy' ORDER BY f.length LIMIT 3;
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id ORDER BY f.length DESC LIMIT 3;
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id WHERE c.name = 'Comedy' ORDER BY f.rental_duration DESC LIMIT 3;
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.film_id = c.category_id WHERE c.name = 'Comedy' ORDER BY f.length DESC LIMIT 3;
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id WHERE c.name = 'Comedy' ORDER BY f.length DESC LIMIT 2;
SELECT f.title FROM film f JOIN film_category fc ON f.film_id = fc.film_id JOIN category c ON fc.category_id = c.category_id WHERE c.name = 'Comedies' ORDER BY f.length DESC LIMIT 3;
-- gold
SELECT SUM(p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH';
-- right
SELECT SUM(amount) FROM payment WHERE customer_id IN (SELECT customer_id FROM customer WHERE first_name = 'MARY' AND last_name = 'SMITH');
SELECT SUM(p.amount) FROM customer c, payment p WHERE c.customer_id = p.customer_id AND c.first_name || ' ' || c.last_name = 'MARY SMITH';
-- wrong
SELECT SUM(p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' OR c.last_name = 'SMITH';
SELECT SUM(p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.last_name = 'SMITH';
SELECT SUM(p.amount) FROM payment p JOIN rental r ON p.rental_id = r.rental_id JOIN customer c ON r.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH';
SELECT SUM(p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'Mary' AND c.last_name = 'Smith';
SELECT COUNT(p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH';
SELECT SUM(DISTINCT p.amount) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH';
SELECT COALESCE(SUM(p.amount), 0) FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH';
SELECT p.amount FROM payment p JOIN customer c ON p.customer_id = c.customer_id WHERE c.first_name = 'MARY' AND c.last_name = 'SMITH' LIMIT 1;
-- gold
SELECT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date IS NULL;
-- right
SELECT c.first_name, c.last_name FROM rental r JOIN customer c USING (customer_id) WHERE NOT r.return_date IS NOT NULL;
SELECT first_name, last_name FROM customer NATURAL JOIN (SELECT customer_id FROM rental WHERE return_date IS NULL);
-- wrong
SELECT DISTINCT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date IS NULL;
SELECT c.first_name, c.last_name FROM customer c LEFT JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date IS NULL;
SELECT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date = '';
SELECT c.first_name, c.last_name FROM customer c WHERE c.customer_id IN (SELECT customer_id FROM rental WHERE return_date IS NULL);
SELECT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.rental_id WHERE r.return_date IS NULL;
SELECT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date IS NOT NULL;
SELECT c.first_name, c.last_name FROM customer c JOIN rental r ON c.customer_id = r.customer_id WHERE r.return_date IS NULL AND c.active = 'Y';
-- gold
SELECT rating, COUNT(*), AVG(length) FROM film WHERE length >= 60 GROUP BY rating ORDER BY rating;
-- right
SELECT rating, COUNT(film_id), SUM(length) * 1.0 / COUNT(*) FROM film WHERE NOT length < 60 GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(length), AVG(length) FROM (SELECT rating, length FROM film WHERE length > 59) GROUP BY 1 ORDER BY 1;
-- wrong
SELECT rating, COUNT(*), AVG(length) FROM film WHERE length > 60 GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(*), SUM(length) / COUNT(*) FROM film WHERE length >= 60 GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(*), AVG(length) FROM film GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(*), AVG(length) FROM film WHERE length >= 60 AND rating IS NOT NULL GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(*), AVG(length) FROM film WHERE length >= 60 GROUP BY rating ORDER BY COUNT(*);
SELECT rating, AVG(length), COUNT(*) FROM film WHERE length >= 60 GROUP BY rating ORDER BY rating;
SELECT rating, COUNT(*), AVG(length) FROM film GROUP BY rating HAVING AVG(length) >= 60 ORDER BY rating;
-- gold
SELECT f.title FROM film f WHERE NOT EXISTS (SELECT 1 FROM inventory i WHERE i.film_id = f.film_id);
-- right
SELECT title FROM film WHERE film_id NOT IN (SELECT film_id FROM inventory);
SELECT f.title FROM film f LEFT JOIN inventory i ON i.film_id = f.film_id WHERE i.inventory_id IS NULL;
SELECT f.title FROM film f LEFT JOIN inventory i USING (film_id) GROUP BY f.film_id HAVING COUNT(i.inventory_id) = 0;
-- wrong
SELECT f.title FROM film f WHERE EXISTS (SELECT 1 FROM inventory i WHERE i.film_id = f.film_id);
SELECT title FROM film WHERE film_id NOT IN (SELECT inventory_id FROM inventory);
SELECT title FROM film EXCEPT SELECT f.title FROM film f JOIN inventory i ON i.film_id = f.film_id;
SELECT DISTINCT f.title FROM film f LEFT JOIN inventory i ON i.film_id = f.film_id WHERE i.inventory_id IS NULL;
SELECT f.title FROM film f JOIN inventory i ON i.film_id = f.film_id WHERE i.inventory_id IS NULL;
SELECT f.title FROM film f WHERE NOT EXISTS (SELECT 1 FROM inventory i JOIN rental r ON r.inventory_id = i.inventory_id WHERE i.film_id = f.film_id);
-- gold
SELECT strftime('%m', rental_date), COUNT(*) FROM rental WHERE strftime('%Y', rental_date) = '2005' GROUP BY strftime('%m', rental_date);
-- right
SELECT substr(rental_date, 6, 2), COUNT(rental_id) FROM rental WHERE substr(rental_date, 1, 4) = '2005' GROUP BY 1;
SELECT m, COUNT(*) FROM (SELECT strftime('%m', rental_date) AS m FROM rental WHERE rental_date >= '2005-01-01' AND rental_date < '2006-01-01') GROUP BY m;
-- wrong
SELECT strftime('%m', rental_date), COUNT(*) FROM rental GROUP BY strftime('%m', rental_date);
SELECT strftime('%m', rental_date), COUNT(*) FROM rental WHERE strftime('%Y', rental_date) = 2005 GROUP BY strftime('%m', rental_date);
SELECT strftime('%d', rental_date), COUNT(*) FROM rental WHERE strftime('%Y', rental_date) = '2005' GROUP BY strftime('%d', rental_date);
SELECT strftime('%m', rental_date), COUNT(DISTINCT customer_id) FROM rental WHERE strftime('%Y', rental_date) = '2005' GROUP BY strftime('%m', rental_date);
SELECT CAST(strftime('%m', rental_date) AS INTEGER), COUNT(*) FROM rental WHERE strftime('%Y', rental_date) = '2005' GROUP BY 1;
SELECT strftime('%m', return_date), COUNT(*) FROM rental WHERE strftime('%Y', rental_date) = '2005' GROUP BY strftime('%m', return_date);
SELECT strftime('%m', rental_date), COUNT(*) FROM rental WHERE rental_date <= '2005-12-31' GROUP BY strftime('%m', rental_date);
-- gold
SELECT MAX(payment_date) FROM payment WHERE amount > 10;
-- right
SELECT payment_date FROM payment WHERE amount > 10 UNION ALL SELECT NULL ORDER BY 1 DESC LIMIT 1;
SELECT MAX(CASE WHEN amount > 10 THEN payment_date END) FROM payment;
SELECT (SELECT payment_date FROM payment WHERE 10 < amount ORDER BY payment_date DESC LIMIT 1);
-- wrong
SELECT MIN(payment_date) FROM payment WHERE amount > 10;
SELECT date(MAX(payment_date)) FROM payment WHERE amount > 10;
SELECT datetime(MAX(payment_date), '+1 second') FROM payment WHERE amount > 10;
SELECT MAX(payment_date) FROM payment WHERE amount >= 10;
SELECT MAX(payment_date) FROM payment WHERE amount > 10.5;
SELECT payment_date FROM payment WHERE amount > 10 ORDER BY amount DESC LIMIT 1;
SELECT MAX(payment_date) FROM payment;
SELECT payment_date FROM payment WHERE amount > 10 ORDER BY payment_date DESC LIMIT 1;
-- gold
SELECT AVG(julianday(return_date) - julianday(rental_date)) FROM rental WHERE return_date IS NOT NULL;
-- right
SELECT AVG(julianday(return_date) - julianday(rental_date)) FROM rental;
SELECT SUM(julianday(return_date) - julianday(rental_date)) / COUNT(return_date) FROM rental;
-- wrong
SELECT AVG(julianday(rental_date) - julianday(return_date)) FROM rental WHERE return_date IS NOT NULL;
SELECT AVG(julianday(date(return_date)) - julianday(date(rental_date))) FROM rental WHERE return_date IS NOT NULL;
SELECT SUM(julianday(return_date) - julianday(rental_date)) / COUNT(*) FROM rental;
SELECT AVG(CAST(julianday(return_date) - julianday(rental_date) AS INTEGER)) FROM rental WHERE return_date IS NOT NULL;
SELECT ROUND(AVG(julianday(return_date) - julianday(rental_date)), 3) FROM rental WHERE return_date IS NOT NULL;
SELECT AVG(julianday(return_date) - julianday(rental_date)) * (1 - 1e-6) FROM rental WHERE return_date IS NOT NULL;
SELECT AVG(julianday(return_date)) - AVG(julianday(rental_date)) FROM rental;
-- gold
SELECT DISTINCT a.last_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.film_id = f.film_id WHERE f.release_year > 2004;
-- right
SELECT DISTINCT last_name FROM actor WHERE actor_id IN (SELECT fa.actor_id FROM film_actor fa JOIN film f USING (film_id) WHERE f.release_year >= 2005);
SELECT last_name FROM actor a WHERE EXISTS (SELECT 1 FROM film_actor fa JOIN film f ON f.film_id = fa.film_id WHERE fa.actor_id = a.actor_id AND f.release_year > 2004) GROUP BY last_name;
SELECT a.last_name FROM actor a, film_actor x, film f WHERE a.actor_id = x.actor_id AND x.film_id = f.film_id AND NOT f.release_year <= 2004 GROUP BY 1;
-- wrong
SELECT a.last_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.film_id = f.film_id WHERE f.release_year > 2004;
SELECT DISTINCT a.last_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.film_id = f.film_id WHERE f.release_year >= 2004;
SELECT DISTINCT a.last_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.film_id = f.film_id WHERE f.release_year > 2005;
SELECT DISTINCT a.first_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.film_id = f.film_id WHERE f.release_year > 2004;
SELECT DISTINCT a.last_name FROM actor a JOIN film_actor fa ON a.actor_id = fa.actor_id JOIN film f ON fa.actor_id = f.film_id WHERE f.release_year > 2004;
SELECT DISTINCT last_name FROM actor WHERE actor_id NOT IN (SELECT fa.actor_id FROM film_actor fa JOIN film f ON fa.film_id = f.film_id WHERE f.release_year <= 2004);
-- gold
SELECT l.name, COUNT(f.film_id) FROM language l LEFT JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY COUNT(f.film_id) DESC, l.name;
-- right
SELECT name, (SELECT COUNT(*) FROM film f WHERE f.language_id = l.language_id) AS n FROM language l ORDER BY n DESC, name;
SELECT name, n FROM (SELECT l.name, COUNT(f.title) AS n FROM film f RIGHT JOIN language l USING (language_id) GROUP BY l.name) ORDER BY n DESC, name ASC;
-- wrong
SELECT l.name, COUNT(f.film_id) FROM language l JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY COUNT(f.film_id) DESC, l.name;
SELECT l.name, COUNT(*) FROM language l LEFT JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY COUNT(*) DESC, l.name;
SELECT l.name, COUNT(f.film_id) FROM language l LEFT JOIN film f ON l.language_id = f.original_language_id GROUP BY l.language_id ORDER BY COUNT(f.film_id) DESC, l.name;
SELECT l.name, COUNT(f.film_id) FROM language l LEFT JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY COUNT(f.film_id) DESC, l.name DESC;
SELECT l.name, COUNT(f.film_id) FROM language l LEFT JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY l.name;
SELECT l.name, COUNT(DISTINCT f.title) FROM language l LEFT JOIN film f ON l.language_id = f.language_id GROUP BY l.language_id ORDER BY 2 DESC, l.name;
-- gold
SELECT s.city, SUM(p.amount) FROM store s JOIN inventory i ON s.store_id = i.store_id JOIN rental r ON i.inventory_id = r.inventory_id JOIN payment p ON r.rental_id = p.rental_id GROUP BY s.store_id;
-- right
SELECT s.city, SUM(p.amount) FROM payment p JOIN rental r USING (rental_id) JOIN inventory i USING (inventory_id) JOIN store s ON s.store_id = i.store_id GROUP BY i.store_id;
WITH paid AS (SELECT i.store_id, p.amount FROM payment p, rental r, inventory i WHERE p.rental_id = r.rental_id AND r.inventory_id = i.inventory_id) SELECT s.city, SUM(paid.amount) FROM store s JOIN paid ON paid.store_id = s.store_id GROUP BY s.store_id;
-- wrong
SELECT s.city, SUM(p.amount) FROM store s JOIN customer c ON s.store_id = c.store_id JOIN payment p ON c.customer_id = p.customer_id GROUP BY s.store_id;
SELECT s.city, SUM(p.amount) FROM store s JOIN inventory i ON s.store_id = i.store_id JOIN rental r ON i.inventory_id = r.inventory_id JOIN payment p ON r.customer_id = p.customer_id GROUP BY s.store_id;
SELECT s.city, SUM(p.amount) FROM store s JOIN inventory i ON s.store_id = i.store_id JOIN rental r ON i.inventory_id = r.inventory_id JOIN payment p ON r.rental_id = p.rental_id GROUP BY s.city;
SELECT s.city, AVG(p.amount) FROM store s JOIN inventory i ON s.store_id = i.store_id JOIN rental r ON i.inventory_id = r.inventory_id JOIN payment p ON r.rental_id = p.rental_id GROUP BY s.store_id;
SELECT s.city, SUM(p.amount) FROM store s LEFT JOIN inventory i ON s.store_id = i.store_id LEFT JOIN rental r ON i.inventory_id = r.inventory_id LEFT JOIN payment p ON r.rental_id = p.rental_id GROUP BY s.store_id;
SELECT s.city, SUM(p.amount) FROM store s JOIN inventory i ON s.store_id = i.store_id JOIN rental r ON i.film_id = r.inventory_id JOIN payment p ON r.rental_id = p.rental_id GROUP BY s.store_id;
-- gold
SELECT title, replacement_cost FROM film WHERE replacement_cost = (SELECT MAX(replacement_cost) FROM film WHERE rental_rate < 4.99);
-- right
WITH m AS (SELECT MAX(replacement_cost) AS c FROM film WHERE rental_rate < 4.99) SELECT title, replacement_cost FROM film JOIN m ON replacement_cost = c;
SELECT title, replacement_cost FROM film WHERE replacement_cost IN (SELECT replacement_cost FROM film WHERE rental_rate < 4.99 ORDER BY replacement_cost DESC LIMIT 1);
-- wrong
SELECT title, replacement_cost FROM film WHERE rental_rate < 4.99 AND replacement_cost = (SELECT MAX(replacement_cost) FROM film WHERE rental_rate < 4.99);
SELECT title, replacement_cost FROM film WHERE replacement_cost = (SELECT MAX(replacement_cost) FROM film);
SELECT title, replacement_cost FROM film WHERE replacement_cost = (SELECT MAX(replacement_cost) FROM film WHERE rental_rate <= 4.99);
SELECT title, MAX(replacement_cost) FROM film WHERE rental_rate < 4.99;
SELECT title, replacement_cost FROM film WHERE replacement_cost >= (SELECT MAX(replacement_cost) FROM film WHERE rental_rate < 4.99);
SELECT title, replacement_cost FROM film WHERE rental_rate < 4.99 ORDER BY replacement_cost DESC LIMIT 1;
-- gold
SELECT COUNT(DISTINCT customer_id) FROM rental WHERE rental_date LIKE '2005-08%';
-- right
SELECT COUNT(*) FROM (SELECT DISTINCT customer_id FROM rental WHERE strftime('%Y-%m', rental_date) = '2005-08');
SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM rental WHERE rental_date >= '2005-08-01' AND rental_date < '2005-09-01');
SELECT COUNT(*) FROM (SELECT customer_id FROM rental WHERE substr(rental_date, 1, 7) = '2005-08' GROUP BY customer_id);
-- wrong
SELECT COUNT(customer_id) FROM rental WHERE rental_date LIKE '2005-08%';
SELECT COUNT(DISTINCT inventory_id) FROM rental WHERE rental_date LIKE '2005-08%';
SELECT COUNT(DISTINCT customer_id) FROM rental WHERE rental_date LIKE '2005-8%';
SELECT COUNT(DISTINCT customer_id) FROM rental WHERE rental_date BETWEEN '2005-08-01' AND '2005-08-31';
SELECT COUNT(DISTINCT customer_id) FROM rental WHERE rental_date LIKE '%-08-%';
SELECT COUNT(DISTINCT customer_id) FROM rental WHERE return_date LIKE '2005-08%';
SELECT COUNT(DISTINCT customer_id) FROM payment WHERE payment_date LIKE '2005-08%';
-- gold
SELECT first_name, last_name FROM actor UNION ALL SELECT first_name, last_name FROM customer;
-- right
SELECT first_name, last_name FROM customer UNION ALL SELECT first_name, last_name FROM actor;
SELECT first_name, last_name FROM (SELECT first_name, last_name FROM actor UNION ALL SELECT first_name, last_name FROM customer);
-- wrong
SELECT first_name, last_name FROM actor UNION SELECT first_name, last_name FROM customer;
SELECT first_name, last_name FROM actor INTERSECT SELECT first_name, last_name FROM customer;
SELECT a.first_name, a.last_name FROM actor a JOIN customer c ON a.first_name = c.first_name;
SELECT first_name, last_name FROM actor UNION ALL SELECT last_name, first_name FROM customer;
SELECT first_name, last_name FROM actor UNION ALL SELECT first_name, last_name FROM customer WHERE active = 'Y';
SELECT first_name, last_name FROM customer UNION ALL SELECT first_name, last_name FROM customer;
-- gold
SELECT title FROM film WHERE rental_duration > 6 AND length IS NOT NULL ORDER BY title, film_id;
-- right
SELECT title FROM film WHERE rental_duration = 7 AND length IS NOT NULL ORDER BY title, film_id;
SELECT title FROM film WHERE rental_duration NOT IN (3, 4, 5, 6) AND NOT length IS NULL ORDER BY title ASC, film_id ASC;
-- wrong
SELECT title FROM film WHERE rental_duration >= 6 AND length IS NOT NULL ORDER BY title, film_id;
SELECT title FROM film WHERE rental_duration > 6 ORDER BY title, film_id;
SELECT title FROM film WHERE rental_duration > 6 AND length IS NOT NULL ORDER BY title DESC, film_id;
SELECT title FROM film WHERE rental_duration > 6 AND length IS NOT NULL ORDER BY film_id;
SELECT title FROM film WHERE rental_duration > 6 AND length > 60 ORDER BY title, film_id;
SELECT DISTINCT title FROM film WHERE rental_duration > 6 AND length IS NOT NULL ORDER BY title;
-- gold
SELECT c.name, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM film_category) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
-- right
SELECT c.name, 100.0 * COUNT(fc.film_id) / (SELECT COUNT(film_id) FROM film_category) FROM film_category fc JOIN category c USING (category_id) GROUP BY c.category_id;
SELECT c.name, n * 100.0 / SUM(n) OVER () FROM (SELECT category_id, COUNT(*) AS n FROM film_category GROUP BY category_id) JOIN category c USING (category_id);
-- wrong
SELECT c.name, COUNT(*) * 100 / (SELECT COUNT(*) FROM film_category) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
SELECT c.name, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM film) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
SELECT c.name, COUNT(*) * 1.0 / (SELECT COUNT(*) FROM film_category) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
SELECT c.name, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM film_category) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.name;
SELECT c.name, COUNT(*) * 100.0 / (SELECT COUNT(DISTINCT film_id) FROM film_category) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
SELECT c.name, ROUND(COUNT(*) * 100.0 / (SELECT COUNT(*) FROM film_category), 2) FROM category c JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
SELECT c.name, COUNT(fc.film_id) * 100.0 / (SELECT COUNT(*) FROM film_category) FROM category c LEFT JOIN film_category fc ON c.category_id = fc.category_id GROUP BY c.category_id;
-- gold
SELECT f.title, COUNT(r.rental_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id ORDER BY COUNT(r.rental_id) DESC, f.film_id LIMIT 1 OFFSET 1;
-- right
SELECT title, n FROM (SELECT f.film_id, f.title, COUNT(*) AS n FROM rental r JOIN inventory i USING (inventory_id) JOIN film f USING (film_id) GROUP BY f.film_id) ORDER BY n DESC, film_id LIMIT 1, 1;
SELECT title, n FROM (SELECT f.title, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, f.film_id) AS k FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id) WHERE k = 2;
-- wrong
SELECT f.title, COUNT(r.rental_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id ORDER BY n DESC, f.film_id LIMIT 1;
SELECT f.title, COUNT(r.rental_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id ORDER BY n DESC, f.film_id LIMIT 1 OFFSET 2;
SELECT f.title, COUNT(r.rental_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id ORDER BY n, f.film_id LIMIT 1 OFFSET 1;
SELECT f.title, COUNT(DISTINCT r.customer_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.film_id ORDER BY n DESC, f.film_id LIMIT 1 OFFSET 1;
SELECT f.title, COUNT(r.rental_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id JOIN rental r ON i.inventory_id = r.inventory_id GROUP BY f.title ORDER BY n DESC, f.film_id LIMIT 1 OFFSET 1;
SELECT f.title, COUNT(i.inventory_id) AS n FROM film f JOIN inventory i ON f.film_id = i.film_id GROUP BY f.film_id ORDER BY n DESC, f.film_id LIMIT 1 OFFSET 1;
