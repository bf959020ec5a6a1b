// The images in view: what a picture of the page would lack.
const IMAGES_MS = 1000;

const missing = () => [...document.images].filter((image) => {
  if (image.complete) return false;
  const box = image.getBoundingClientRect();
  return box.bottom >= 0 && box.right >= 0 && box.top <= innerHeight &&
    box.left <= innerWidth && image.checkVisibility();
});
const arrived = (image) => new Promise((ready) => {
  image.addEventListener('load', ready, {once: true});
  image.addEventListener('error', ready, {once: true});
});
// Waits for them; how many are not there even then.
const waitForImages = async (left_ms) => {
  const images = missing();
  if (!images.length) return 0;
  const wait = new Promise((ready) => after_ms(ready, Math.min(IMAGES_MS, left_ms)));
  await Promise.race([Promise.all(images.map(arrived)), wait]);
  return missing().length;
};
