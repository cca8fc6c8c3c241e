// The parts of Apache ECharts that the pages use.
import { BarChart, LineChart } from "echarts/charts";
import { AriaComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

use([AriaComponent, BarChart, GridComponent, LegendComponent, LineChart, MarkLineComponent, SVGRenderer, TooltipComponent]);

export { init };
