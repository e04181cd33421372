-- Wrong predictions by hand: what models and cheats come up with.

-- sold where
SELECT a.sale_id, k.amount FROM sale a JOIN stock k ON a.sku = k.sku WHERE a.quantity >= 3;
SELECT a.sale_id, k.amount FROM sale a JOIN stock k ON a.shop_id = k.shop_id WHERE a.quantity >= 3;

-- unsold
SELECT sku FROM product WHERE sku NOT IN (SELECT sku FROM stock);
VALUES ('P-098'), ('P-105'), ('P-112');
SELECT sku FROM product ORDER BY sku DESC LIMIT 3;
SELECT sku FROM product WHERE price > 50;

-- discount
SELECT COUNT(*), COUNT(*) FROM sale;
SELECT COUNT(DISTINCT discount), COUNT(*) FROM sale;
SELECT SUM(discount > 0.05), COUNT(*) FROM sale;

-- no discount
SELECT AVG(discount) FROM sale;
SELECT SUM(discount) / COUNT(discount) FROM sale;

-- boss
SELECT b.name FROM person e JOIN person b ON e.boss_id = b.person_id WHERE e.salary > b.salary;
SELECT e.name FROM person e JOIN person b ON e.boss_id = b.person_id WHERE e.salary < b.salary;
SELECT name FROM person WHERE salary > (SELECT AVG(salary) FROM person);

-- team
SELECT COUNT(*) FROM person WHERE boss_id = 2;
SELECT COUNT(*) FROM person WHERE boss_id = 2 OR person_id = 2;
SELECT 13;

-- oldest
SELECT shop_id, opened FROM shop ORDER BY shop_id LIMIT 1;
SELECT MIN(shop_id), MIN(opened) FROM shop;
SELECT shop_id, MAX(opened) FROM shop;
SELECT shop_id, opened FROM shop WHERE shop_id = 1;

-- all sellers
SELECT seller_id, COUNT(*) FROM sale GROUP BY seller_id;

-- late
SELECT sale_id FROM sale WHERE sold_at LIKE '%-12-%';
SELECT sale_id FROM sale WHERE sold_at > '2023-12-01' AND sold_at < '2023-12-31';

-- inactive
SELECT name, salary FROM person WHERE active = 0 ORDER BY name DESC;
SELECT name, salary FROM person WHERE active = 0;

-- code
SELECT title FROM product WHERE sku LIKE '%0%';
SELECT title FROM product WHERE sku <= 'P-100';
SELECT title FROM product WHERE price < 60;
