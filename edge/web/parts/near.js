// Parts of a long page exist only near the visible area: 5,000 values would be 60,000 elements.
import { useEffect, useSignal } from "../ui.js";

const MARGIN = "800px 0px";
const calls = new WeakMap();  // element -> function
const observer = new IntersectionObserver(
  (changes) => { for (const { target, isIntersecting } of changes) calls.get(target)?.(isIntersecting); },
  { rootMargin: MARGIN },
);

/** A signal that tells whether an element is near the visible area. `first` is the answer until the browser knows. */
export function useNear(ref, first) {
  const near = useSignal(first);
  useEffect(() => {
    const element = ref.current;
    calls.set(element, (value) => { near.value = value; });
    observer.observe(element);
    return () => observer.unobserve(element);
  }, []);
  return near;
}
