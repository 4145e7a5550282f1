// The entry: styles, the page, and the first questions to the server.

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { start } from "./live";

const place = document.getElementById("console");
if (place) {
  place.replaceChildren();
  render(<App />, place);
  start();
}
