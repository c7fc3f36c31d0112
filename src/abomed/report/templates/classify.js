"use strict";
(() => {
  const list = document.getElementById("answers");
  const rows = Array.from(list.children);
  const find = (id) => document.getElementById(id);
  const [order, byClass, byFlag, text, told] = ["order", "by-class", "by-flag", "text", "shown"].map(find);
  const number = (row, key) => Number(row.dataset[key]);
  const orders = {
    folder: (a, b) => number(a, "i") - number(b, "i"),
    unsure: (a, b) => number(a, "p") - number(b, "p"),
    sure: (a, b) => number(b, "p") - number(a, "p"),
    novel: (a, b) => number(b, "n") - number(a, "n"),
    answer: (a, b) => number(a, "w") - number(b, "w") || number(b, "p") - number(a, "p"),
    wrong: (a, b) => number(b, "x") - number(a, "x") || number(b, "p") - number(a, "p"),
  };

  const sort = () => {
    rows.sort((a, b) => orders[order.value](a, b) || orders.folder(a, b));
    list.append(...rows);
  };
  const filter = () => {
    const wanted = text.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const flag = byFlag.value;
      const keep =
        (byClass.value === "" || row.dataset.w === byClass.value) &&
        (flag === "" ||
          (flag === "*" && row.dataset.f !== "") ||
          (flag === "?" && number(row, "s") > 1) ||
          (flag === "x" && row.dataset.x === "1") ||
          row.dataset.f.split(" ").includes(flag)) &&
        (wanted === "" || row.dataset.t.toLowerCase().includes(wanted));
      row.hidden = !keep;
      count += keep;
    }
    told.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  };
  order.addEventListener("change", sort);
  for (const control of [byClass, byFlag]) control.addEventListener("change", filter);
  let waiting = 0;
  text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });

  // --- one image at a time, with its heat map
  const view = find("view");
  const canvas = find("heat");
  const toggle = find("with-heat");
  const scale = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  let current = null;

  const colour = (heat) => {
    const place = heat * (scale.length - 1);
    const below = Math.min(Math.floor(place), scale.length - 2);
    return scale[below].map((low, k) => low + (scale[below + 1][k] - low) * (place - below));
  };
  // The cells of the map enlarged in place, between their centres in straight lines.
  const draw = (row) => {
    const side = canvas.width;
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, side, side);
    if (!row.dataset.h || !toggle.checked) return;
    const cells = Uint8Array.from(atob(row.dataset.h), (char) => char.charCodeAt(0));
    const [high, wide] = row.dataset.g.split(" ").map(Number);
    const near = (at, most) => {
      const place = Math.min(Math.max(((at + 0.5) * most) / side - 0.5, 0), most - 1);
      const first = Math.min(Math.floor(place), Math.max(most - 2, 0));
      return [first, Math.min(first + 1, most - 1), place - first];
    };
    const pixels = pen.createImageData(side, side);
    for (let y = 0; y < side; y += 1) {
      const [top, bottom, down] = near(y, high);
      for (let x = 0; x < side; x += 1) {
        const [left, right, across] = near(x, wide);
        const above = cells[top * wide + left] * (1 - across) + cells[top * wide + right] * across;
        const under = cells[bottom * wide + left] * (1 - across) + cells[bottom * wide + right] * across;
        const heat = (above * (1 - down) + under * down) / 255;
        pixels.data.set([...colour(heat), 255 * 0.75 * heat], 4 * (y * side + x));
      }
    }
    pen.putImageData(pixels, 0, 0);
  };
  const show = (row) => {
    current = row;
    find("big").src = row.querySelector("img").src;
    find("view-name").textContent = row.dataset.t;
    find("view-answer").replaceChildren(...Array.from(row.querySelectorAll(".said, .bars, .more"), (part) => part.cloneNode(true)));
    const closest = row.dataset.e.split(" ").filter(Boolean).map((place) => find(`labelled-${place}`)).filter(Boolean);
    find("view-near").replaceChildren(...closest.map((figure) => {
      const copy = figure.cloneNode(true);
      copy.removeAttribute("id");
      return copy;
    }));
    find("near-title").hidden = closest.length === 0;
    draw(row);
    if (!view.open) view.showModal();
  };
  const step = (by) => {
    const visible = rows.filter((row) => !row.hidden);
    const next = visible[visible.indexOf(current) + by];
    if (next) show(next);
  };
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) show(button.closest("li"));
  });
  toggle.addEventListener("change", () => current && draw(current));
  find("before").addEventListener("click", () => step(-1));
  find("after").addEventListener("click", () => step(1));
  find("close").addEventListener("click", () => view.close());
  view.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  view.addEventListener("close", () => current && current.querySelector("button").focus({ preventScroll: false }));
  for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
  filter();
})();
